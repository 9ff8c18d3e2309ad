// The packets of one allreduce: for each slot a stream in which the result of a packet determines the next packet.
//
// With a window of W slots, slot s carries packets s, s + W, s + 2W, … of the vector. Integers take one turn per
// packet. Floats take one turn for the exponents of the first packet, then one or more packets per chunk. The streams
// of all workers take the same turns, because only results determine them, and all workers receive the same results.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "weft/aggregation/packet/packet.h"
#include "weft/numeric/half.h"

namespace weft::aggregation {

// A mean is the sum divided by the number of workers. Only floats have one.
enum class Reduction : std::uint8_t { kSum, kMean };

struct SumLayout {
  Mode mode = Mode::kExtended;
  int packet_elements = 256;
  int workers = 1;
  int window = 1;  // number of slots
  Reduction reduction = Reduction::kSum;
};

class SumStream {
 public:
  SumStream() = default;
  virtual ~SumStream() = default;
  SumStream(const SumStream&) = delete;
  SumStream& operator=(const SumStream&) = delete;

  // Number of slots in use: the first ones of the window.
  [[nodiscard]] virtual int slots() const = 0;
  // Shape of the packet of the slot's current turn.
  [[nodiscard]] virtual Shape shape(int slot) const = 0;
  virtual void fill(int slot, const Body& body) = 0;
  // Accepts the result of the current turn, which has the packet's shape. Returns whether the slot has another turn.
  [[nodiscard]] virtual bool accept(int slot, const Packet& result) = 0;

  // Number of elements whose sum is complete.
  [[nodiscard]] virtual std::int64_t elements_done() const = 0;
  // Returns a hash that differs between workers if they do not call the same operation.
  [[nodiscard]] virtual std::uint32_t fingerprint() const = 0;
  // Number of packets beyond the first of each chunk of floats.
  [[nodiscard]] virtual std::int64_t extra_rounds() const { return 0; }
};

// `in` and `out` have the same length and are identical or do not overlap; both must outlive the stream.
[[nodiscard]] std::unique_ptr<SumStream> make_sum(const SumLayout& layout, std::span<const std::int32_t> in,
                                                  std::span<std::int32_t> out);
[[nodiscard]] std::unique_ptr<SumStream> make_sum(const SumLayout& layout, std::span<const float> in,
                                                  std::span<float> out);
[[nodiscard]] std::unique_ptr<SumStream> make_sum(const SumLayout& layout, std::span<const numeric::Float16> in,
                                                  std::span<numeric::Float16> out);
[[nodiscard]] std::unique_ptr<SumStream> make_sum(const SumLayout& layout, std::span<const numeric::BFloat16> in,
                                                  std::span<numeric::BFloat16> out);

}  // namespace weft::aggregation
