// The layers of an experiment, built for this rank.
#pragma once

#include <string>
#include <vector>

#include "weft/experiment/layer.h"

namespace weft::experiment {

// What `weft check` shows of a layer.
struct LayerRow {
  std::string name;
  std::string kind;
  std::string output;
  std::string tiles;            // how the output is cut
  std::int64_t parameters = 0;  // whole
};

// No torch, no ranks: what a split over `plan` would give. For the table of `weft check`.
[[nodiscard]] std::vector<LayerRow> explain(const Experiment& experiment, const RankPlan& plan);

class Network {
 public:
  // Collective over the mesh. The same weights from the same seed, whatever the mesh.
  Network(const Experiment& experiment, const Mesh& mesh);

  // Of this rank's tile of the images, [batch, maps, rows, columns]. Collective over the group.
  [[nodiscard]] Flow input(const at::Tensor& tile) const;
  [[nodiscard]] at::Tensor forward(const at::Tensor& tile, const Pass& pass) const;
  // Through the layers [first, last).
  [[nodiscard]] Flow run(Flow x, std::size_t first, std::size_t last, const Pass& pass) const;

  [[nodiscard]] std::size_t size() const noexcept { return layers_.size(); }
  [[nodiscard]] Layer& layer(std::size_t i) const { return *layers_[i]; }
  // Behind an update of parameters.
  void updated() const;
  [[nodiscard]] std::vector<Parameter*> parameters() const;
  // Of one layer.
  [[nodiscard]] std::vector<Parameter*> parameters(std::size_t layer) const;

 private:
  spatial::LayoutPtr images_;
  std::vector<LayerPtr> layers_;
};

[[nodiscard]] std::string kind_name(LayerKind kind);

}  // namespace weft::experiment
