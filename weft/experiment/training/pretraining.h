// Layer-wise unsupervised training: a local filter and its decoder learn a sparse reconstruction of the filter's input.
#pragma once

#include <cstddef>
#include <optional>

#include "weft/data/loader.h"
#include "weft/experiment/layers/local_filter.h"
#include "weft/experiment/layers/network.h"

namespace weft::experiment {

class Pretrainer {
 public:
  // Pretrains the local filter `layer` together with the pooling layer after it. Network and mesh must outlive the
  // pretrainer.
  Pretrainer(Network& network, std::size_t layer, const Mesh& mesh);

  [[nodiscard]] std::size_t layer() const noexcept { return layer_; }
  // Trains on one batch and returns its cost: half the squared error of the reconstruction plus sparsity times the
  // pooled outputs, divided by the batch size. Updates the decoder first, then the filter. Collective.
  double step(const data::Batch& batch);
  // The layer's input for a tile of images, and its reconstruction. Collective.
  [[nodiscard]] spatial::DistTensor input_of(const at::Tensor& tile) const;
  [[nodiscard]] spatial::DistTensor reconstruction(const spatial::DistTensor& x) const;
  // Copies the filter's weights to the decoder, unless they are tied.
  void copy_filter();
  // The decoder's weights, or null if they are tied to the filter's.
  [[nodiscard]] Parameter* decoder() { return decoder_ ? &*decoder_ : nullptr; }

 private:
  void update(at::Tensor& weights, const at::Tensor& gradient) const;
  [[nodiscard]] const at::Tensor& decoding_weights() const;
  [[nodiscard]] at::Tensor summed(const at::Tensor& gradient) const;

  Network& network_;
  std::size_t layer_;
  const Mesh& mesh_;
  LocalFilter& filter_;
  std::optional<Parameter> decoder_;
};

}  // namespace weft::experiment
