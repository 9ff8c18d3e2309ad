// parallelize: an nn::Sequential of torch's C++ frontend, also with blocks in it, split over tiles of its input.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/spatial/layer_step.h"

namespace weft::spatial {

// Whether consecutive layers share one exchange, of a halo wide enough for all of them: wherever they can, or where
// that is faster, forward, with the sizes given, on the slowest rank.
enum class HaloRegions { kNone, kAll, kMeasured };

class SplitSequential {
 public:
  SplitSequential(torch::nn::Sequential net, const RankGridPtr& grid, const std::vector<std::int64_t>& input_shape,
                  HaloRegions regions = HaloRegions::kNone);

  // Tiles, or a tensor that every rank holds whole, as the network ends. Collective. Takes the whole input, or a tile.
  [[nodiscard]] Flow forward(const at::Tensor& x) const;
  // As forward, for a network that ends in tiles, or in a whole tensor; throws (TORCH_CHECK) where it does not.
  [[nodiscard]] DistTensor tiles(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor whole(const at::Tensor& x) const;

  // The network's own parameters, and this rank's part of those that are split.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;
  // Puts the split weights back into the unsplit network, whose other parameters are shared. Collective.
  void save();
  // Takes the split weights from the unsplit network, after it was loaded.
  void load();
  // A table of layers and tiles.
  [[nodiscard]] std::string explain() const;
  [[nodiscard]] const LayoutPtr& layout() const noexcept { return layout_; }

 private:
  // A linear layer behind flatten, cut by its inputs.
  struct SplitLinear {
    std::shared_ptr<torch::nn::Module> module;
    at::Tensor weight;  // [outputs, channels, tile...]
    LayoutPtr layout;
  };

  void append(const std::string& name, const std::shared_ptr<torch::nn::Module>& module);
  void append_linear(const std::string& name, const std::shared_ptr<torch::nn::Module>& module);
  // What comes to each step: tiles without data, or none where it is no tiles.
  using Inputs = std::vector<std::optional<DistTensor>>;
  [[nodiscard]] Inputs propagate(at::Tensor x);
  void place_regions(HaloRegions regions, const Inputs& inputs, std::int64_t batch);
  // How many steps from `first` on make a region: the longest run with two exchanges or more, which ends in one.
  [[nodiscard]] std::size_t region_length(std::size_t first, const Inputs& inputs) const;
  [[nodiscard]] LayerStep region_of(std::size_t first, std::size_t count, Run shared, std::size_t number);

  torch::nn::Sequential net_;
  LayoutPtr layout_;
  std::int64_t seed_;  // of dropout's masks
  std::vector<LayerStep> steps_;
  std::vector<std::shared_ptr<SplitLinear>> linears_;
  std::vector<std::string> rows_;
};

// `input_shape` is that of the whole input, [batch, channels, ...] or [channels, ...]. Rank 0's weights count. Throws
// (NotImplementedError) on every rank, naming the layer, where one cannot be split. Collective.
[[nodiscard]] SplitSequential parallelize(const torch::nn::Sequential& net, const RankGridPtr& grid,
                                          const std::vector<std::int64_t>& input_shape,
                                          HaloRegions regions = HaloRegions::kNone);

}  // namespace weft::spatial
