// The layers of an experiment, built for this rank.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/experiment/layers/layer_context.h"
#include "weft/experiment/layers/parameter.h"

namespace weft::experiment {

using spatial::nn::Activations;
using spatial::nn::ForwardContext;

// Returns true if a fully connected layer follows layer `i`.
[[nodiscard]] bool linear_follows(const std::vector<LayerSpec>& layers, std::size_t i);

// A row of the table of `weft check`.
struct LayerRow {
  std::string name;
  std::string kind;
  std::string output;
  std::string tiles;            // the part of the output that a rank holds
  std::int64_t parameters = 0;  // number of parameters of the whole layer
};

// Describes the layers split according to `plan`, without building them. Not collective.
[[nodiscard]] std::vector<LayerRow> explain(const Experiment& experiment, const RankPlan& plan);

class Network {
 public:
  // Draws the same weights from the same seed on every mesh. Collective over the mesh.
  Network(const Experiment& experiment, const Mesh& mesh);

  // Wraps this rank's tile of the images, [batch, maps, rows, columns].
  [[nodiscard]] Activations input(const at::Tensor& tile) const;
  // Runs all layers on this rank's tile of the images. Collective over the group.
  [[nodiscard]] at::Tensor forward(const at::Tensor& tile, const ForwardContext& context) const;
  // Runs the layers [first, last). Collective over the group.
  [[nodiscard]] Activations run(Activations x, std::size_t first, std::size_t last,
                                const ForwardContext& context) const;

  [[nodiscard]] std::size_t size() const noexcept { return layers_.size(); }
  [[nodiscard]] spatial::nn::Layer& layer(std::size_t i) const { return layers_[i]; }
  // Returns the residuals of the layers that a multigrid solver evaluates, by the layer's name.
  [[nodiscard]] std::vector<std::pair<std::string, SolverResiduals>> solver_residuals() const;
  // Call after each optimizer step.
  void after_update() { layers_.after_update(); }
  [[nodiscard]] std::vector<Parameter*> parameters() const;
  // Returns the parameters of one layer.
  [[nodiscard]] std::vector<Parameter*> parameters(std::size_t layer) const;

 private:
  spatial::LayoutPtr images_;
  spatial::nn::Sequential layers_;
  std::vector<std::vector<std::unique_ptr<Parameter>>> parameters_;  // by layer
  std::vector<std::pair<std::string, std::function<SolverResiduals()>>> residuals_;
};

}  // namespace weft::experiment
