#include "weft/spatial/nn/split_sequential.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <chrono>

#include "weft/collective/autograd/fake_kernel.h"
#include "weft/collective/broadcast.h"
#include "weft/spatial/dropout.h"
#include "weft/spatial/linear.h"
#include "weft/spatial/nn/block.h"
#include "weft/spatial/nn/halo_region.h"
#include "weft/spatial/nn/layers.h"

namespace weft::spatial::nn {
namespace {

using at::Tensor;

Sizes field_of(const Sizes& input_shape, const RankGridPtr& grid) {
  const std::size_t dims = grid->grid().dims();
  TORCH_CHECK_VALUE(input_shape.size() == dims + 1 || input_shape.size() == dims + 2, "weft: a grid of ",
                    grid->grid().describe(), " expects an input [batch, channels, ...] or [channels, ...], got ",
                    at::IntArrayRef(input_shape));
  return Sizes(input_shape.end() - static_cast<std::ptrdiff_t>(dims), input_shape.end());
}

Tensor tile_of_weight(const Tensor& weight, std::int64_t channels, const LayoutPtr& layout) {
  Sizes sizes{weight.size(0), channels};
  const auto shape = layout->shape();
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return tile_of(weight.detach().view(sizes), layout).local.clone();
}

void send_weights(torch::nn::Module& net, const CommunicatorPtr& comm) {
  const at::NoGradGuard no_grad;
  for (const Tensor& tensor : net.parameters()) tensor.detach().copy_(collective::broadcast(tensor.detach(), comm));
  for (const Tensor& tensor : net.buffers()) tensor.copy_(collective::broadcast(tensor, comm));
}

// Times the forward passes of both layers in turns. Collective.
bool runs_faster(Layer& candidate, Layer& present, const DistTensor& like, std::int64_t batch, at::ScalarType type) {
  const at::NoGradGuard no_grad;
  auto sizes = like.local.sizes().vec();
  sizes[0] = batch;
  const Activations x = DistTensor{at::zeros(sizes, type), like.layout};
  std::vector<double> times[2];
  for (std::int64_t round = 0; round <= kTimingRounds; ++round) {
    for (const int i : {0, 1}) {
      const auto start = std::chrono::steady_clock::now();
      static_cast<void>((i == 0 ? candidate : present).forward(x, {}));
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      if (round > 0) times[i].push_back(time.count());  // the first round warms up
    }
  }
  return is_faster(times[0], times[1], like.layout->comm());
}

}  // namespace

SplitSequential::SplitSequential(torch::nn::Sequential net, const RankGridPtr& grid, const Sizes& input_shape,
                                 HaloRegions regions)
    : net_(std::move(net)),
      layout_(Layout::balanced(grid, field_of(input_shape, grid))),
      seed_(draw_seed(grid->comm())) {
  for (const auto& child : net_->named_children()) append(child.key(), child.value());
  send_weights(*net_, grid->comm());
  const std::int64_t channels = input_shape[input_shape.size() - layout_->dims() - 1];
  const Inputs inputs =
      propagate(at::empty(layout_->local_sizes({1, channels}), at::TensorOptions().device(at::kMeta)));
  const std::int64_t batch = input_shape.size() > layout_->dims() + 1 ? input_shape[0] : 1;
  if (regions != HaloRegions::kNone) place_regions(regions, inputs, batch);
}

void SplitSequential::append(const std::string& name, const ModulePtr& module) {
  if (std::dynamic_pointer_cast<BlockImpl>(module)) {
    for (const auto& child : module->named_children()) append(name + "." + child.key(), child.value());
  } else if (std::dynamic_pointer_cast<torch::nn::LinearImpl>(module)) {
    steps_.push_back({name, "Linear", split_linear(module)});
  } else {
    const auto seed = seed_ + static_cast<std::int64_t>(steps_.size());
    steps_.push_back({name, kind_of(*module), layer_of(name, module, seed)});
  }
}

// propagate() shows the layer its tiles for the first time; then the layer cuts its weight.
LayerPtr SplitSequential::split_linear(const ModulePtr& module) {
  const auto own = std::dynamic_pointer_cast<torch::nn::LinearImpl>(module);
  auto split = std::make_shared<SplitLinear>(SplitLinear{own->weight, {}, nullptr});
  linears_.push_back(split);
  return function_layer([own, split](const Activations& x, const ForwardContext&) -> Activations {
    if (const auto* whole = std::get_if<Tensor>(&x)) return own->forward(*whole);
    const auto* flat = std::get_if<Flattened>(&x);
    TORCH_CHECK_NOT_IMPLEMENTED(flat != nullptr, "weft: a linear layer expects flattened tiles");
    if (!split->weight.defined()) {
      split->layout = flat->tiles.layout;
      split->weight = tile_of_weight(own->weight, flat->tiles.local.size(1), split->layout);
      split->weight.set_requires_grad(own->weight.requires_grad());
    }
    return spatial::linear(flat->tiles, split->weight, own->bias);
  });
}

std::string SplitSequential::row(const Step& step, const Activations& y) {
  std::ostringstream text;
  text << step.name << "  " << step.kind << "  ";
  if (const auto* tiles = std::get_if<DistTensor>(&y)) {
    text << at::IntArrayRef(tiles->sizes()) << ", tile " << tiles->layout->tile().describe();
  } else if (const auto* whole = std::get_if<Tensor>(&y)) {
    text << whole->sizes() << ", whole";
  } else {
    text << "flattened tiles";
  }
  return text.str();
}

SplitSequential::Inputs SplitSequential::propagate(Tensor x) {
  const at::NoGradGuard no_grad;
  const collective::ShapesOnly nothing_is_sent;
  Activations values = DistTensor{std::move(x), layout_};
  Inputs inputs;
  for (const Step& step : steps_) {
    const auto* tiles = std::get_if<DistTensor>(&values);
    inputs.push_back(tiles == nullptr ? std::nullopt : std::optional<DistTensor>(*tiles));
    if (std::holds_alternative<Tensor>(values)) {  // from here on every rank computes the same as one process
      rows_.push_back(step.name + "  " + step.kind + "  whole");
      continue;
    }
    try {
      values = step.layer->forward(values, {});
    } catch (const std::exception& error) {
      TORCH_CHECK_NOT_IMPLEMENTED(false, "weft: parallelize cannot split '", step.name, "' (", step.kind,
                                  "): ", error.what());
    }
    rows_.push_back(row(step, values));
  }
  return inputs;
}

void SplitSequential::place_regions(HaloRegions regions, const Inputs& inputs, std::int64_t batch) {
  const auto parameters = net_->parameters();
  const at::ScalarType type = parameters.empty() ? at::kFloat : parameters.front().scalar_type();
  std::vector<std::optional<RegionLayer>> parts;
  std::vector<RegionCandidate> candidates;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    parts.push_back(inputs[i] ? steps_[i].layer->region_layer(layout_->dims()) : std::nullopt);
    const bool exchanges = parts[i] && needs_halo(parts[i]->windows, layout_->grid()->grid().extents());
    candidates.push_back({static_cast<std::int64_t>(i) - 1, 1, parts[i].has_value(), exchanges});
  }
  std::size_t number = 0;
  for (const Sizes& chain : region_chains(candidates)) {
    const auto first = static_cast<std::size_t>(chain.front());
    const auto last = static_cast<std::size_t>(chain.back());
    std::vector<RegionLayer> shared_parts;
    std::vector<LayerPtr> layers;
    for (std::size_t i = first; i <= last; ++i) {
      shared_parts.push_back(*parts[i]);
      layers.push_back(steps_[i].layer);
    }
    const auto each = std::make_shared<Sequential>(std::move(layers));
    const LayerPtr shared = halo_region(std::move(shared_parts), inputs[first]->layout, each);
    if (regions == HaloRegions::kMeasured && !runs_faster(*shared, *each, *inputs[first], batch, type)) continue;
    ++number;
    for (std::size_t i = first; i <= last; ++i) {
      rows_[i] += "  halo region " + std::to_string(number);
      steps_[i].layer = i == first ? shared : nullptr;
    }
  }
  std::erase_if(steps_, [](const Step& step) { return step.layer == nullptr; });
}

Activations SplitSequential::forward(const Tensor& x) const {
  const auto tail = x.sizes().slice(static_cast<std::size_t>(x.dim()) - layout_->dims());
  Activations values = tail == at::IntArrayRef(layout_->shape()) ? tile_of(x, layout_) : DistTensor{x, layout_};
  std::get<DistTensor>(values).validate();
  const ForwardContext context{.training = net_->is_training(), .step = ++calls_};
  for (const Step& step : steps_) values = step.layer->forward(values, context);
  return values;
}

DistTensor SplitSequential::tiles(const Tensor& x) const {
  const Activations y = forward(x);
  TORCH_CHECK(std::holds_alternative<DistTensor>(y),
              "weft: the output of this network is a whole tensor, not tiles; call whole()");
  return std::get<DistTensor>(y);
}

Tensor SplitSequential::whole(const Tensor& x) const {
  const Activations y = forward(x);
  TORCH_CHECK(std::holds_alternative<Tensor>(y),
              "weft: the output of this network is tiles, not a whole tensor; call tiles()");
  return std::get<Tensor>(y);
}

std::vector<Tensor> SplitSequential::parameters() const {
  std::vector<Tensor> result;
  for (const Tensor& parameter : net_->parameters()) {
    const auto split = std::find_if(linears_.begin(), linears_.end(), [&](const auto& linear) {
      return linear->weight.defined() && linear->whole.is_same(parameter);
    });
    result.push_back(split == linears_.end() ? parameter : (*split)->weight);
  }
  return result;
}

void SplitSequential::save() {
  const at::NoGradGuard no_grad;
  for (const auto& linear : linears_) {
    if (!linear->weight.defined()) continue;
    linear->whole.copy_(all_gather({linear->weight, linear->layout}).flatten(1));
  }
}

void SplitSequential::load() {
  const at::NoGradGuard no_grad;
  for (const auto& linear : linears_) {
    if (!linear->weight.defined()) continue;
    linear->weight.copy_(tile_of_weight(linear->whole, linear->weight.size(1), linear->layout));
  }
}

std::string SplitSequential::explain() const {
  std::string text;
  for (const std::string& line : rows_) text += line + "\n";
  return text;
}

SplitSequential parallelize(const torch::nn::Sequential& net, const RankGridPtr& grid, const Sizes& input_shape,
                            HaloRegions regions) {
  return SplitSequential(net, grid, input_shape, regions);
}

}  // namespace weft::spatial::nn
