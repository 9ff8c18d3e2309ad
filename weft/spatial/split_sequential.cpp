#include "weft/spatial/split_sequential.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <chrono>

#include "weft/collective/all_reduce.h"
#include "weft/collective/broadcast.h"
#include "weft/collective/traced.h"
#include "weft/spatial/block.h"
#include "weft/spatial/linear.h"

namespace weft::spatial {
namespace {

namespace nn = torch::nn;
using at::Tensor;
using Sizes = std::vector<std::int64_t>;

Sizes field_of(const Sizes& input_shape, const RankGridPtr& grid) {
  const std::size_t dims = grid->grid().dims();
  TORCH_CHECK_VALUE(input_shape.size() == dims + 1 || input_shape.size() == dims + 2, "weft: a grid of ",
                    grid->grid().describe(), " expects an input [batch, channels, ...] or [channels, ...], got ",
                    at::IntArrayRef(input_shape));
  return Sizes(input_shape.end() - static_cast<std::ptrdiff_t>(dims), input_shape.end());
}

Tensor cut(const Tensor& weight, std::int64_t channels, const LayoutPtr& layout) {
  Sizes sizes{weight.size(0), channels};
  const auto shape = layout->shape();
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return tile_of(weight.detach().view(sizes), layout).local.clone();
}

std::string row(const LayerStep& step, const Flow& y) {
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

void send_weights(nn::Module& net, const Comm& comm) {
  const at::NoGradGuard no_grad;
  for (const Tensor& tensor : net.parameters()) tensor.detach().copy_(collective::broadcast(tensor.detach(), comm));
  for (const Tensor& tensor : net.buffers()) tensor.copy_(collective::broadcast(tensor, comm));
}

Run one_after_the_other(std::vector<Run> runs) {
  return [runs = std::move(runs)](const Flow& x) {
    Flow flow = x;
    for (const Run& run : runs) flow = run(flow);
    return flow;
  };
}

// Both ways, forward, taking turns. The slowest rank counts, for all alike. Collective.
bool is_faster(const Run& candidate, const Run& present, const DistTensor& like, std::int64_t batch,
               at::ScalarType type) {
  constexpr std::size_t kRounds = 5;
  const at::NoGradGuard no_grad;
  auto sizes = like.local.sizes().vec();
  sizes[0] = batch;
  const Flow x = DistTensor{at::zeros(sizes, type), like.layout};
  std::vector<double> times[2];
  for (std::size_t round = 0; round <= kRounds; ++round) {
    for (const Run* run : {&candidate, &present}) {
      const auto start = std::chrono::steady_clock::now();
      static_cast<void>((*run)(x));
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      if (round > 0) times[run == &candidate ? 0 : 1].push_back(time.count());  // the first warms up
    }
  }
  for (auto& samples : times) std::nth_element(samples.begin(), samples.begin() + kRounds / 2, samples.end());
  const Tensor medians = at::tensor({times[0][kRounds / 2], times[1][kRounds / 2]}, at::kDouble);
  const Tensor slowest = collective::all_reduce(medians, like.layout->comm(), mpi::ReduceOp::kMax);
  return slowest[0].item<double>() < slowest[1].item<double>();
}

// Rank 0's, out of torch's generator: what manual_seed reproduces.
std::int64_t drawn_seed(const Comm& comm) {
  return collective::broadcast(at::randint(std::int64_t{1} << 40, {1}, at::kLong), comm).item<std::int64_t>();
}

}  // namespace

SplitSequential::SplitSequential(nn::Sequential net, const RankGridPtr& grid, const Sizes& input_shape,
                                 HaloRegions regions)
    : net_(std::move(net)),
      layout_(Layout::balanced(grid, field_of(input_shape, grid))),
      seed_(drawn_seed(grid->comm())) {
  for (const auto& child : net_->named_children()) append(child.key(), child.value());
  send_weights(*net_, grid->comm());
  Sizes sizes = layout_->tile().sizes();
  sizes.insert(sizes.begin(), {1, input_shape[input_shape.size() - layout_->dims() - 1]});
  const Inputs inputs = propagate(at::empty(sizes, at::TensorOptions().device(at::kMeta)));
  const std::int64_t batch = input_shape.size() > layout_->dims() + 1 ? input_shape[0] : 1;
  if (regions != HaloRegions::kNone) place_regions(regions, inputs, batch);
}

void SplitSequential::append(const std::string& name, const std::shared_ptr<nn::Module>& module) {
  if (std::dynamic_pointer_cast<BlockImpl>(module)) {
    for (const auto& child : module->named_children()) append(name + "." + child.key(), child.value());
  } else if (std::dynamic_pointer_cast<nn::LinearImpl>(module)) {
    append_linear(name, module);
  } else {
    steps_.push_back(step_of(name, module, seed_ + static_cast<std::int64_t>(steps_.size())));
    steps_.back().part = region_part_of(module, layout_->dims());
  }
}

// Which tiles it gets is known when the first tensor comes, the one without data.
void SplitSequential::append_linear(const std::string& name, const std::shared_ptr<nn::Module>& module) {
  const auto linear_layer = std::dynamic_pointer_cast<nn::LinearImpl>(module);
  auto split = std::make_shared<SplitLinear>(SplitLinear{module, {}, nullptr});
  linears_.push_back(split);
  steps_.push_back({name, "Linear", [linear_layer, split](const Flow& x) -> Flow {
                      if (const auto* whole = std::get_if<Tensor>(&x)) return linear_layer->forward(*whole);
                      const auto* flat = std::get_if<Flattened>(&x);
                      TORCH_CHECK_NOT_IMPLEMENTED(flat != nullptr, "weft: a linear layer takes flattened tiles only");
                      const DistTensor& tiles = flat->tiles;
                      if (!split->weight.defined()) {
                        split->layout = tiles.layout;
                        split->weight = cut(linear_layer->weight, tiles.local.size(1), tiles.layout);
                        split->weight.set_requires_grad(linear_layer->weight.requires_grad());
                      }
                      const Tensor bias =
                          linear_layer->bias.defined() ? matching(linear_layer->bias, tiles.local) : Tensor();
                      return linear(tiles, matching(split->weight, tiles.local),
                                    bias.defined() ? std::optional<Tensor>(bias) : std::nullopt);
                    }});
}

SplitSequential::Inputs SplitSequential::propagate(Tensor x) {
  const at::NoGradGuard no_grad;
  const collective::ShapesOnly nothing_is_sent;
  Flow flow = DistTensor{std::move(x), layout_};
  Inputs inputs;
  for (const LayerStep& step : steps_) {
    const auto* tiles = std::get_if<DistTensor>(&flow);
    inputs.push_back(tiles == nullptr ? std::nullopt : std::optional<DistTensor>(*tiles));
    if (std::holds_alternative<Tensor>(flow)) {  // from here on every rank does what one process does
      rows_.push_back(step.name + "  " + step.kind + "  whole");
      continue;
    }
    try {
      flow = step.run(flow);
    } catch (const std::exception& error) {
      TORCH_CHECK_NOT_IMPLEMENTED(false, "weft: parallelize cannot split '", step.name, "' (", step.kind,
                                  "): ", error.what());
    }
    rows_.push_back(row(step, flow));
  }
  return inputs;
}

std::size_t SplitSequential::region_length(std::size_t first, const Inputs& inputs) const {
  const auto exchanges = [&](std::size_t i) { return steps_[i].part->exchanges(inputs[i]->layout); };
  std::size_t length = 0;
  int exchanging = 0;
  for (std::size_t i = first; i < steps_.size() && steps_[i].part && inputs[i]; ++i) {
    if (!exchanges(i)) continue;
    length = i - first + 1;
    ++exchanging;
  }
  return exchanging > 1 && exchanges(first) ? length : 0;
}

void SplitSequential::place_regions(HaloRegions regions, const Inputs& inputs, std::int64_t batch) {
  const auto parameters = net_->parameters();
  const at::ScalarType type = parameters.empty() ? at::kFloat : parameters.front().scalar_type();
  std::vector<LayerStep> placed;
  std::size_t number = 0;
  for (std::size_t first = 0; first < steps_.size();) {
    const std::size_t count = region_length(first, inputs);
    std::vector<RegionPart> parts;
    std::vector<Run> runs;
    for (std::size_t i = first; i < first + count; ++i) {
      parts.push_back(*steps_[i].part);
      runs.push_back(steps_[i].run);
    }
    const Run each = one_after_the_other(std::move(runs));
    const Run shared = count > 0 ? region_step(std::move(parts), inputs[first]->layout, each) : nullptr;
    if (shared && (regions == HaloRegions::kAll || is_faster(shared, each, *inputs[first], batch, type))) {
      placed.push_back(region_of(first, count, shared, ++number));
      first += count;
    } else {
      placed.push_back(steps_[first++]);
    }
  }
  steps_ = std::move(placed);
}

LayerStep SplitSequential::region_of(std::size_t first, std::size_t count, Run shared, std::size_t number) {
  for (std::size_t i = first; i < first + count; ++i) rows_[i] += "  halo region " + std::to_string(number);
  return {steps_[first].name + " to " + steps_[first + count - 1].name, "HaloRegion", std::move(shared)};
}

Flow SplitSequential::forward(const Tensor& x) const {
  const auto tail = x.sizes().slice(static_cast<std::size_t>(x.dim()) - layout_->dims());
  Flow flow = tail == at::IntArrayRef(layout_->shape()) ? tile_of(x, layout_) : DistTensor{x, layout_};
  std::get<DistTensor>(flow).validate();
  for (const LayerStep& step : steps_) flow = step.run(flow);
  return flow;
}

DistTensor SplitSequential::tiles(const Tensor& x) const {
  const Flow y = forward(x);
  TORCH_CHECK(std::holds_alternative<DistTensor>(y), "weft: this network does not end in tiles");
  return std::get<DistTensor>(y);
}

Tensor SplitSequential::whole(const Tensor& x) const {
  const Flow y = forward(x);
  TORCH_CHECK(std::holds_alternative<Tensor>(y), "weft: this network does not end in a tensor that every rank has");
  return std::get<Tensor>(y);
}

std::vector<Tensor> SplitSequential::parameters() const {
  std::vector<Tensor> result;
  for (const Tensor& parameter : net_->parameters()) {
    const auto split = std::find_if(linears_.begin(), linears_.end(), [&](const auto& linear) {
      return linear->weight.defined() && linear->module->named_parameters()["weight"].is_same(parameter);
    });
    result.push_back(split == linears_.end() ? parameter : (*split)->weight);
  }
  return result;
}

void SplitSequential::save() {
  const at::NoGradGuard no_grad;
  for (const auto& linear : linears_) {
    if (!linear->weight.defined()) continue;
    linear->module->named_parameters()["weight"].copy_(all_gather({linear->weight, linear->layout}).flatten(1));
  }
}

void SplitSequential::load() {
  const at::NoGradGuard no_grad;
  for (const auto& linear : linears_) {
    if (!linear->weight.defined()) continue;
    linear->weight.copy_(cut(linear->module->named_parameters()["weight"], linear->weight.size(1), linear->layout));
  }
}

std::string SplitSequential::explain() const {
  std::string text;
  for (const std::string& line : rows_) text += line + "\n";
  return text;
}

SplitSequential parallelize(const nn::Sequential& net, const RankGridPtr& grid, const Sizes& input_shape,
                            HaloRegions regions) {
  return SplitSequential(net, grid, input_shape, regions);
}

}  // namespace weft::spatial
