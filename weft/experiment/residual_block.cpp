// Layers beside a shortcut: x + body(x), on tiles or on vectors.
#include "weft/experiment/layer.h"
#include "weft/partition/scramble.h"
#include "weft/spatial/share.h"

namespace weft::experiment {
namespace {

using spatial::DistTensor;
using spatial::LayoutPtr;

// What a layer's weights and masks are drawn by: another number than any layer's outside.
std::size_t nested_number(std::size_t block, std::size_t branch, std::size_t i) {
  return partition::scramble(partition::scramble(block + 1) + 2 * i + branch);
}

class Branch {
 public:
  Branch(const LayerContext& block, const std::vector<LayerSpec>& specs, const std::vector<LayerSizes>& sizes,
         std::size_t number)
      : layout_(block.inputs) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      LayerContext context{specs[i],   sizes[i],
                           block.mesh, specs[i].rule.value_or(block.rule),
                           block.seed, nested_number(block.number, number, i),
                           block.type, block.outputs_in_parts,
                           layout_};
      layers_.push_back(make_layer(context, layout_));
    }
  }

  [[nodiscard]] Flow forward(Flow x, const Pass& pass) const {
    for (const LayerPtr& layer : layers_) x = layer->forward(x, pass);
    return x;
  }

  [[nodiscard]] const LayoutPtr& layout() const noexcept { return layout_; }
  [[nodiscard]] const std::vector<LayerPtr>& layers() const noexcept { return layers_; }

 private:
  LayoutPtr layout_;  // of the outputs; null where they are whole
  std::vector<LayerPtr> layers_;
};

// A vector that one branch has in parts and the other whole is added in parts.
Flow in_parts_of(const Flow& x, const LayoutPtr& layout) {
  if (!layout || std::holds_alternative<DistTensor>(x)) return x;
  return spatial::retile(std::get<at::Tensor>(x), layout);
}

class ResidualBlock final : public Layer {
 public:
  explicit ResidualBlock(const LayerContext& context)
      : spec_(context.spec),
        body_(context, spec_.body, context.sizes.body, 0),
        shortcut_(context, spec_.shortcut, context.sizes.shortcut, 1),
        layout_(body_.layout() ? body_.layout() : shortcut_.layout()) {
    for (const Branch* branch : {&body_, &shortcut_}) {
      for (const LayerPtr& layer : branch->layers()) {
        const auto& theirs = layer->parameters();  // the same tensors, which updates change in place
        parameters_.insert(parameters_.end(), theirs.begin(), theirs.end());
      }
    }
  }

  Flow forward(const Flow& x, const Pass& pass) override {
    const Flow change = in_parts_of(body_.forward(x, pass), layout_);
    const Flow beside = in_parts_of(shortcut_.forward(x, pass), layout_);
    if (const auto* whole = std::get_if<at::Tensor>(&change))
      return activated(Flow(whole->add(std::get<at::Tensor>(beside))), spec_);
    const auto& tiles = std::get<DistTensor>(change);
    const at::Tensor sum = tiles.local.add(std::get<DistTensor>(beside).local);
    return activated(Flow(DistTensor{sum, tiles.layout}), spec_);
  }

  void updated() override {
    for (const Branch* branch : {&body_, &shortcut_}) {
      for (const LayerPtr& layer : branch->layers()) layer->updated();
    }
  }

  [[nodiscard]] const LayoutPtr& layout() const noexcept { return layout_; }

 private:
  LayerSpec spec_;
  Branch body_;
  Branch shortcut_;
  LayoutPtr layout_;
};

}  // namespace

LayerPtr make_residual_block(const LayerContext& context, LayoutPtr& layout) {
  auto block = std::make_unique<ResidualBlock>(context);
  layout = block->layout();
  return block;
}

}  // namespace weft::experiment
