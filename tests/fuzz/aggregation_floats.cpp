// Fuzz target: a worker's float sum whose results contain arbitrary exponents and integers.
//
// Input: a byte whose bits 0-1 select the type, bit 2 the format and bits 3-7 the number of workers; then the bits of
// the floats, two bytes each; then the contents of the results, repeated as needed.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "weft/aggregation/worker/sum_stream.h"

namespace {

using namespace weft::aggregation;
using weft::numeric::BFloat16;
using weft::numeric::Float16;

constexpr std::size_t kNumbers = 150;  // more than a packet, and not a multiple of the block size
// Upper bound: one round for each 8 bits between the largest and the smallest float.
constexpr int kMostTurns = 200;

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data, size) {}
  // Repeats the input; zeros if it is empty.
  std::uint8_t next() { return data_.empty() ? std::uint8_t{0} : data_[at_++ % data_.size()]; }

 private:
  std::span<const std::uint8_t> data_;
  std::size_t at_ = 0;
};

// Passes hostile results until the operation ends.
void sum(SumStream& operation, Mode mode, Input& input) {
  for (int slot = 0; slot < operation.slots(); ++slot) {
    int turns = 0;
    for (bool more = true; more; ++turns) {
      if (turns > kMostTurns) std::abort();
      const Shape shape = operation.shape(slot);
      std::vector<std::byte> bytes(packet_size(mode, shape));
      Head head;
      head.mode = mode;
      head.slot = static_cast<std::uint32_t>(slot);
      const Body body = write_head(bytes, head, shape);
      operation.fill(slot, body);
      for (std::byte& byte : body.exponents) byte = std::byte{input.next()};
      for (std::byte& byte : body.elements) byte = std::byte{input.next()};
      more = operation.accept(slot, {head, body.exponents, body.elements});
    }
  }
  if (operation.elements_done() != static_cast<std::int64_t>(kNumbers)) std::abort();
}

template <class Number, class Make>
void sum_as(const SumLayout& layout, Input& input, Make make) {
  std::vector<Number> numbers(kNumbers);
  for (Number& number : numbers) {
    const std::uint32_t high = input.next();
    number = make(static_cast<std::uint16_t>(high << 8 | input.next()));
  }
  const auto operation = make_sum(layout, std::span<const Number>(numbers), std::span(numbers));
  sum(*operation, layout.mode, input);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Mode mode = (data[0] & 4U) != 0 ? Mode::kSwitchMl : Mode::kExtended;
  const SumLayout layout{mode, mode == Mode::kSwitchMl ? 64 : 128, 2 + (data[0] >> 3), 2};
  Input input(data + 1, size - 1);
  switch (data[0] & 3U) {
    case 0:
      sum_as<Float16>(layout, input, [](std::uint16_t bits) { return Float16{bits}; });
      break;
    case 1:
      sum_as<BFloat16>(layout, input, [](std::uint16_t bits) { return BFloat16{bits}; });
      break;
    default:
      sum_as<float>(layout, input, [](std::uint16_t bits) { return BFloat16{bits}.to_float(); });
  }
  return 0;
}
