// Window arithmetic along one dimension: which inputs an output range of a convolution or a pooling needs.
#pragma once

#include <cstdint>

#include "weft/partition/cuts.h"
#include "weft/partition/range.h"

namespace weft::partition {

// Output o sees the inputs o * stride - padding_lo + dilation * j, for j in [0, kernel).
struct Window {
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding_lo = 0;
  std::int64_t padding_hi = 0;
  std::int64_t dilation = 1;
  bool ceil_mode = false;  // the last window may reach beyond the padding, if it begins before the padding behind

  // Throws std::invalid_argument naming what is out of range.
  void validate() const;
  // From the first input of a window to the last.
  [[nodiscard]] std::int64_t reach() const { return dilation * (kernel - 1) + 1; }
  // How many outputs `size` inputs have; 0 where the window does not fit.
  [[nodiscard]] std::int64_t outputs(std::int64_t size) const;
  // The inputs that the outputs need, also such as lie in the padding; empty for none.
  [[nodiscard]] Range needed(const Range& outputs) const;
  // The outputs, among `outputs`, whose windows reach over any of `inputs`.
  [[nodiscard]] Range reaching(const Range& inputs, const Range& outputs) const;
  // Of [0, kernel), those with which some of `outputs` may see some of `inputs`: no other j does.
  [[nodiscard]] Range taps(const Range& inputs, const Range& outputs) const;

  friend bool operator==(const Window&, const Window&) = default;
};

// The window of a transposed convolution: input i adds to the outputs i * stride - padding + dilation * j.
struct TransposedWindow {
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t output_padding = 0;
  std::int64_t dilation = 1;

  void validate() const;
  [[nodiscard]] std::int64_t outputs(std::int64_t size) const;
  // The inputs, among `size`, that add to the outputs.
  [[nodiscard]] Range needed(const Range& outputs, std::int64_t size) const;
  // The outputs that the inputs add to, before cropping.
  [[nodiscard]] Range reached(const Range& inputs) const;
};

// How a layer's outputs are cut where its inputs are cut so. Balanced cuts stay balanced, so that fields of equal size
// are always cut alike; other cuts are followed in proportion.
[[nodiscard]] Cuts cut_outputs(const Cuts& inputs, std::int64_t outputs);

}  // namespace weft::partition
