#include "weft/partition/window.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace weft::partition {
namespace {

std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return -floor_divide(-a, b); }

void require_at_least(const char* what, std::int64_t value, std::int64_t least) {
  if (value >= least) return;
  throw std::invalid_argument("Window: " + std::string(what) + " must be at least " + std::to_string(least) + ", not " +
                              std::to_string(value));
}

}  // namespace

void Window::validate() const {
  require_at_least("kernel", kernel, 1);
  require_at_least("stride", stride, 1);
  require_at_least("dilation", dilation, 1);
  require_at_least("padding", std::min(padding_lo, padding_hi), 0);
}

std::int64_t Window::outputs(std::int64_t size) const {
  const std::int64_t room = size + padding_lo + padding_hi - reach();
  if (room < 0 && !ceil_mode) return 0;
  if (!ceil_mode) return room / stride + 1;
  const std::int64_t count = ceil_divide(room, stride) + 1;
  const bool starts_too_late = (count - 1) * stride >= size + padding_lo;
  return std::max<std::int64_t>(starts_too_late ? count - 1 : count, 0);
}

Range Window::needed(const Range& outputs) const {
  if (outputs.empty()) return {0, 0};
  return {outputs.begin * stride - padding_lo, (outputs.end - 1) * stride - padding_lo + reach()};
}

Range Window::reaching(const Range& inputs, const Range& outputs) const {
  if (inputs.empty()) return {outputs.begin, outputs.begin};
  const std::int64_t first = ceil_divide(inputs.begin + padding_lo - reach() + 1, stride);
  const std::int64_t last = floor_divide(inputs.end - 1 + padding_lo, stride);
  return outputs.intersect({first, last + 1});
}

Range Window::taps(const Range& inputs, const Range& outputs) const {
  if (inputs.empty() || outputs.empty()) return {0, 0};
  const std::int64_t first = ceil_divide(inputs.begin + padding_lo - (outputs.end - 1) * stride, dilation);
  const std::int64_t last = floor_divide(inputs.end - 1 + padding_lo - outputs.begin * stride, dilation);
  return Range{0, kernel}.intersect({first, last + 1});
}

void TransposedWindow::validate() const {
  require_at_least("kernel", kernel, 1);
  require_at_least("stride", stride, 1);
  require_at_least("dilation", dilation, 1);
  require_at_least("padding", padding, 0);
  require_at_least("output_padding", output_padding, 0);
  if (output_padding >= std::max(stride, dilation)) {
    throw std::invalid_argument("Window: output_padding must be less than the larger of stride and dilation (" +
                                std::to_string(std::max(stride, dilation)) + "), not " +
                                std::to_string(output_padding));
  }
}

std::int64_t TransposedWindow::outputs(std::int64_t size) const {
  if (size < 1) return 0;
  return std::max<std::int64_t>((size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1, 0);
}

Range TransposedWindow::needed(const Range& outputs, std::int64_t size) const {
  if (outputs.empty()) return {0, 0};
  const std::int64_t first = ceil_divide(outputs.begin + padding - dilation * (kernel - 1), stride);
  const std::int64_t last = floor_divide(outputs.end - 1 + padding, stride);
  return Range{first, last + 1}.intersect({0, size});
}

Range TransposedWindow::reached(const Range& inputs) const {
  if (inputs.empty()) return {0, 0};
  return {inputs.begin * stride - padding, (inputs.end - 1) * stride - padding + dilation * (kernel - 1) + 1};
}

Cuts cut_outputs(const Cuts& inputs, std::int64_t outputs) {
  if (inputs.total() == outputs) return inputs;
  if (inputs.is_balanced() || inputs.total() == 0) return Cuts::balanced(outputs, inputs.parts());
  std::vector<std::int64_t> sizes;
  std::int64_t before = 0;
  for (std::int64_t i = 0; i < inputs.parts(); ++i) {
    // Rounds to the nearest; the last cut equals the total.
    const std::int64_t cut = (2 * inputs.part(i).end * outputs + inputs.total()) / (2 * inputs.total());
    sizes.push_back(cut - before);
    before = cut;
  }
  return Cuts::of_sizes(sizes);
}

}  // namespace weft::partition
