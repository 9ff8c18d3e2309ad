// Window arithmetic along one dimension: which inputs a range of convolution or pooling outputs needs.
#pragma once

#include <cstdint>

#include "weft/partition/cuts.h"
#include "weft/partition/range.h"

namespace weft::partition {

// The window of output o covers the inputs o * stride - padding_lo + dilation * j, for j in [0, kernel).
struct Window {
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding_lo = 0;
  std::int64_t padding_hi = 0;
  std::int64_t dilation = 1;
  bool ceil_mode = false;  // as in torch: the last window may exceed the padding if it starts before the high padding

  // Throws std::invalid_argument if a member is out of range.
  void validate() const;
  // The extent of a window, from its first to its last input.
  [[nodiscard]] std::int64_t reach() const { return dilation * (kernel - 1) + 1; }
  // The number of outputs for `size` inputs; 0 if the window does not fit.
  [[nodiscard]] std::int64_t outputs(std::int64_t size) const;
  // The inputs that `outputs` need, including positions in the padding.
  [[nodiscard]] Range needed(const Range& outputs) const;
  // The subset of `outputs` whose windows cover any of `inputs`.
  [[nodiscard]] Range reaching(const Range& inputs, const Range& outputs) const;
  // The kernel positions j through which some of `outputs` may cover some of `inputs`.
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

  // Throws std::invalid_argument if a member is out of range.
  void validate() const;
  // The number of outputs for `size` inputs.
  [[nodiscard]] std::int64_t outputs(std::int64_t size) const;
  // The inputs, out of `size`, that add to `outputs`.
  [[nodiscard]] Range needed(const Range& outputs, std::int64_t size) const;
  // The outputs that `inputs` add to, before cropping to the valid range.
  [[nodiscard]] Range reached(const Range& inputs) const;
};

// The division of a layer's outputs that follows from the division of its inputs. Balanced cuts stay balanced, so that
// fields of equal size are always divided in the same way; other cuts are scaled proportionally.
[[nodiscard]] Cuts cut_outputs(const Cuts& inputs, std::int64_t outputs);

}  // namespace weft::partition
