// Layer-wise unsupervised training: a filter and its decoder learn to reconstruct the filter's input, sparsely.
#pragma once

#include <cstddef>
#include <optional>

#include "weft/data/loader.h"
#include "weft/experiment/local_filter_layer.h"
#include "weft/experiment/network.h"

namespace weft::experiment {

class Pretrainer {
 public:
  // Of the local filter that is layer number `layer`, with the pooling behind it. The network must outlive it.
  Pretrainer(Network& network, std::size_t layer, const Mesh& mesh);

  [[nodiscard]] std::size_t layer() const noexcept { return layer_; }
  // One batch: half the squared distance of reconstruction and input plus sparsity times the pooled outputs, both
  // summed, by the batch's size. The decoder is updated first, then the filter. Returns the cost. Collective.
  double step(const data::Batch& batch);
  // Of the layer's input. Collective.
  [[nodiscard]] spatial::DistTensor input_of(const at::Tensor& tile) const;
  [[nodiscard]] spatial::DistTensor reconstruction(const spatial::DistTensor& x) const;
  // The decoder, if it has weights of its own, begins as the filter is now.
  void copy_filter();
  // The decoder's own weights, if they are not tied to the filter's.
  [[nodiscard]] Parameter* decoder() { return decoder_ ? &*decoder_ : nullptr; }

 private:
  void update(at::Tensor& weights, const at::Tensor& gradient) const;
  [[nodiscard]] const at::Tensor& decoding_weights() const;
  [[nodiscard]] at::Tensor summed(const at::Tensor& gradient) const;

  Network& network_;
  std::size_t layer_;
  const Mesh& mesh_;
  LocalFilterLayer& filter_;
  std::optional<Parameter> decoder_;
};

}  // namespace weft::experiment
