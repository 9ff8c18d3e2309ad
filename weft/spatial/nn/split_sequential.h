// parallelize(): a torch::nn::Sequential, which may contain Blocks, split over tiles of its input.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/spatial/nn/module_layers.h"

namespace weft::spatial::nn {

// Whether consecutive layers share one exchange of a halo that is wide enough for all of them: never, always, or if the
// forward pass of the given sizes is faster on the slowest rank.
enum class HaloRegions { kNone, kAll, kMeasured };

class SplitSequential {
 public:
  // See parallelize(). Collective.
  SplitSequential(torch::nn::Sequential net, const RankGridPtr& grid, const Sizes& input_shape,
                  HaloRegions regions = HaloRegions::kNone);

  // Takes the whole input, or this rank's tile of it. Returns the kind of values in which the network ends. Collective.
  [[nodiscard]] Activations forward(const at::Tensor& x) const;
  // Like forward(), for a network whose output is tiles, or a whole tensor. Throws (TORCH_CHECK) for another output.
  [[nodiscard]] DistTensor tiles(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor whole(const at::Tensor& x) const;

  // Returns the network's own parameters; for split weights, this rank's part.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;
  // Copies the split weights back to the unsplit network, which shares all other parameters. Collective.
  void save();
  // Copies the split weights from the unsplit network, e.g. after loading a checkpoint into it.
  void load();
  // Returns a table of layers and tiles.
  [[nodiscard]] std::string explain() const;
  [[nodiscard]] const LayoutPtr& layout() const noexcept { return layout_; }

 private:
  struct Step {
    std::string name;
    std::string kind;
    LayerPtr layer;
  };
  // A linear layer after flatten, split by its inputs. propagate() fills in weight and layout.
  struct SplitLinear {
    at::Tensor whole;
    at::Tensor weight;  // [outputs, channels, tile...]
    LayoutPtr layout;
  };
  // The input of each step: tiles on the meta device, or nullopt if the input is not tiled.
  using Inputs = std::vector<std::optional<DistTensor>>;

  void append(const std::string& name, const ModulePtr& module);
  [[nodiscard]] LayerPtr split_linear(const ModulePtr& module);
  [[nodiscard]] Inputs propagate(at::Tensor x);
  void place_regions(HaloRegions regions, const Inputs& inputs, std::int64_t batch);
  static std::string row(const Step& step, const Activations& y);

  torch::nn::Sequential net_;
  LayoutPtr layout_;
  std::int64_t seed_;  // seed of dropout masks
  mutable std::uint64_t calls_ = 0;
  std::vector<Step> steps_;
  std::vector<std::shared_ptr<SplitLinear>> linears_;
  std::vector<std::string> rows_;
};

// `input_shape` is the shape of the whole input, [batch, channels, ...] or [channels, ...]. All ranks get rank 0's
// weights. Throws (NotImplementedError) on every rank an error that names the layer if one cannot be split. Collective.
[[nodiscard]] SplitSequential parallelize(const torch::nn::Sequential& net, const RankGridPtr& grid,
                                          const Sizes& input_shape, HaloRegions regions = HaloRegions::kNone);

}  // namespace weft::spatial::nn
