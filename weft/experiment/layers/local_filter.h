// A local filter and its decoder, which layer-wise pre-training trains.
#pragma once

#include "weft/experiment/layers/weights.h"
#include "weft/experiment/layers/window.h"

namespace weft::experiment {

class LocalFilterSettings final : public LayerSettings {
 public:
  LocalFilterSettings(Fields& fields, LayerListReader& lists);
  LocalFilterSettings(Fields& fields, NeonLayer& layer);

  [[nodiscard]] bool needs_field() const override { return true; }
  [[nodiscard]] bool pretrained() const override { return pretraining; }
  [[nodiscard]] Extent output(const LayerSizes& sizes, const LayerProblems& problems) const override;
  [[nodiscard]] std::int64_t parameter_count(const LayerSizes& sizes) const override;
  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override;

  WindowSettings window;
  WeightSettings weights;
  bool pretraining = false;
  double sparsity = 0;
  bool tied_weights = false;
  double pretrain_rate = 0;
};

class LocalFilter final : public spatial::nn::Layer {
 public:
  LocalFilter(const LocalFilterSettings& settings, const LayerContext& context);

  [[nodiscard]] spatial::nn::Activations forward(const spatial::nn::Activations& x,
                                                 const spatial::nn::ForwardContext& context) override;
  // Scales the weights of each output to length 1.
  void after_update() override;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const LocalFilterSettings& settings() const noexcept { return settings_; }
  [[nodiscard]] const spatial::LayoutPtr& outputs() const noexcept { return outputs_; }
  // Filters with `weights` instead of the layer's own, which have the same shape.
  [[nodiscard]] spatial::DistTensor encode(const spatial::DistTensor& x, const at::Tensor& weights) const;
  [[nodiscard]] spatial::DistTensor decode(const spatial::DistTensor& y, const at::Tensor& weights) const;
  [[nodiscard]] at::Tensor& weights() { return parameters_.front().value; }
  // Scales the weights of each output to length 1, in place. Rows of zeros stay.
  static void normalize(at::Tensor& weights, std::size_t dims);

 private:
  LocalFilterSettings settings_;
  std::string name_;
  spatial::LayoutPtr inputs_;
  spatial::LayoutPtr outputs_;
};

}  // namespace weft::experiment
