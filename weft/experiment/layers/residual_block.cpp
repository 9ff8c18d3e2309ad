// A residual block: shortcut(x) + body(x), on tiles or on vectors.
#include "weft/experiment/file/sizes.h"
#include "weft/experiment/layers/activation.h"
#include "weft/experiment/layers/layer_context.h"
#include "weft/partition/scramble.h"
#include "weft/spatial/share.h"

namespace weft::experiment {
namespace {

using spatial::DistTensor;
using spatial::LayoutPtr;
using spatial::nn::Activations;
using spatial::nn::ForwardContext;

// The number of a nested layer, which differs from the numbers of all other layers.
std::size_t nested_number(std::size_t block, std::size_t branch, std::size_t i) {
  return partition::scramble(partition::scramble(block + 1) + 2 * i + branch);
}

// Builds the layers of a branch in sequence. The outputs are those of the last one.
BuiltLayer build_branch(const LayerContext& block, const std::vector<LayerSpec>& layers, std::size_t branch) {
  auto sequence = std::make_shared<spatial::nn::Sequential>();
  LayoutPtr layout = block.inputs;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerContext context{
        layers[i],  block.sizes.branches[branch][i], block.mesh, block.seed, nested_number(block.number, branch, i),
        block.type, block.outputs_in_parts,          layout};
    BuiltLayer built = layers[i].settings->build(context);
    sequence->append(built.layer);
    layout = built.outputs;
  }
  return {sequence, layout};
}

// If one branch returns a vector in parts and the other returns it whole, the sum is in parts.
Activations in_parts_of(const Activations& x, const LayoutPtr& layout) {
  if (!layout || std::holds_alternative<DistTensor>(x)) return x;
  return spatial::retile(std::get<at::Tensor>(x), layout);
}

class ResidualBlock final : public spatial::nn::Layer {
 public:
  ResidualBlock(const BuiltLayer& body, const BuiltLayer& shortcut)
      : branches_({body.layer, shortcut.layer}), layout_(body.outputs ? body.outputs : shortcut.outputs) {}

  Activations forward(const Activations& x, const ForwardContext& context) override {
    const Activations change = in_parts_of(branches_[0].forward(x, context), layout_);
    const Activations same = in_parts_of(branches_[1].forward(x, context), layout_);
    if (const auto* whole = std::get_if<at::Tensor>(&change)) return whole->add(std::get<at::Tensor>(same));
    const auto& tiles = std::get<DistTensor>(change);
    return DistTensor{tiles.local.add(std::get<DistTensor>(same).local), tiles.layout};
  }

  void after_update() override { branches_.after_update(); }
  [[nodiscard]] std::vector<spatial::nn::Parameter> parameters() const override { return branches_.parameters(); }

  [[nodiscard]] const LayoutPtr& outputs() const noexcept { return layout_; }

 private:
  spatial::nn::Sequential branches_;  // body and shortcut
  LayoutPtr layout_;
};

class ResidualSettings final : public LayerSettings {
 public:
  ResidualSettings(Fields& fields, LayerListReader& lists) : branches_{{""}, {"shortcut."}} {
    fields.require("layers");
    if (const Value* body = fields.list("layers")) branches_[0].layers = lists.read(*body);
    if (const Value* shortcut = fields.list("shortcut")) branches_[1].layers = lists.read(*shortcut);
    activation_ = read_activation(fields, "linear");
  }

  [[nodiscard]] std::span<LayerBranch> branches() override { return branches_; }
  [[nodiscard]] Activation activation() const override { return activation_; }

  [[nodiscard]] Extent output(const LayerSizes& sizes, const LayerProblems& problems) const override {
    const auto end_of = [&](std::size_t branch) {
      return sizes.branches[branch].empty() ? sizes.in : sizes.branches[branch].back().out;
    };
    const Extent body = end_of(0);
    const Extent shortcut = end_of(1);
    if (body == shortcut) return shortcut;
    const bool identity = sizes.branches[1].empty();
    problems.add("the layers of residual block '" + problems.name() + "' return " + body.describe() + "; expected " +
                 shortcut.describe() +
                 (identity ? ", the size of the block's input; add a shortcut that changes the size"
                           : ", the size of its shortcut"));
    return shortcut;
  }

  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override {
    const auto block = std::make_shared<ResidualBlock>(build_branch(context, branches_[0].layers, 0),
                                                       build_branch(context, branches_[1].layers, 1));
    return {with_activation(block, activation_), block->outputs()};
  }

 private:
  std::vector<LayerBranch> branches_;
  Activation activation_;
};

const RegisterLayerType kResidualBlockRegistered(layer_type<ResidualSettings>("residual", "layers"));

}  // namespace
}  // namespace weft::experiment
