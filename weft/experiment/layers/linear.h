// A fully connected layer.
//
// Each rank holds the columns of its inputs. If another fully connected layer follows, each rank computes its part of
// the outputs, otherwise all of them.
#pragma once

#include "weft/experiment/layers/activation.h"
#include "weft/experiment/layers/weights.h"

namespace weft::experiment {

class LinearSettings final : public LayerSettings {
 public:
  LinearSettings(Fields& fields, LayerListReader& lists);
  LinearSettings(Fields& fields, NeonLayer& layer);

  [[nodiscard]] bool fully_connected() const override { return true; }
  [[nodiscard]] Activation activation() const override { return activation_; }
  bool remove_logistic() override { return experiment::remove_logistic(activation_); }
  [[nodiscard]] Extent output(const LayerSizes& /*sizes*/, const LayerProblems& /*problems*/) const override {
    return {weights.outputs, {}};
  }
  [[nodiscard]] bool output_is_whole(bool input_is_whole, bool linear_follows) const override {
    return input_is_whole || !linear_follows;
  }
  [[nodiscard]] std::int64_t parameter_count(const LayerSizes& sizes) const override {
    return weight_count(weights, sizes.in.values());
  }
  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override;

  WeightSettings weights;

 private:
  Activation activation_;
};

}  // namespace weft::experiment
