// Local filtering with its decoder: what layer-wise pre-training trains.
#pragma once

#include <vector>

#include "weft/experiment/layer.h"

namespace weft::experiment {

class LocalFilterLayer final : public Layer {
 public:
  explicit LocalFilterLayer(const LayerContext& context);

  [[nodiscard]] Flow forward(const Flow& x, const Pass& pass) override;
  // Every output's weights have length 1.
  void updated() override;

  [[nodiscard]] const LayerSpec& spec() const noexcept { return spec_; }
  [[nodiscard]] const spatial::LayoutPtr& outputs() const noexcept { return outputs_; }
  // With other weights of the same shape than the layer's own.
  [[nodiscard]] spatial::DistTensor encode(const spatial::DistTensor& x, const at::Tensor& weights) const;
  [[nodiscard]] spatial::DistTensor decode(const spatial::DistTensor& y, const at::Tensor& weights) const;
  [[nodiscard]] at::Tensor& weights() { return parameters_.front().value; }
  // In place; every output's weights have length 1 then. Rows of zeros stay.
  static void normalize(at::Tensor& weights, std::size_t dims);

 private:
  LayerSpec spec_;
  spatial::LayoutPtr inputs_;
  spatial::LayoutPtr outputs_;
};

}  // namespace weft::experiment
