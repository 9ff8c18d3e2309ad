// What a worker sums: for each slot a stream of packets to send, each the answer to the result of the one before.
//
// With a window of W slots, slot s carries the W-th packets s, s + W, s + 2W, … of the vector. Integers take one turn
// each; floats one turn ahead for the exponents, then one or more rounds. All workers' streams take the same turns,
// because they are decided by results, which all workers share.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "weft/aggregation/packet.h"
#include "weft/mpi/half.h"

namespace weft::aggregation {

struct Layout {
  Mode mode = Mode::kExtended;
  int packet_elements = 256;
  int workers = 1;
  int window = 1;  // slots
};

class Operation {
 public:
  Operation() = default;
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Slots that have anything to carry: the first so many of the window.
  [[nodiscard]] virtual int slots() const = 0;
  // The packet of the slot's present turn.
  [[nodiscard]] virtual Shape shape(int slot) const = 0;
  virtual void fill(int slot, const Body& body) = 0;
  // Takes the result of the present turn, which has the shape of the packet; whether the slot has another turn.
  [[nodiscard]] virtual bool accept(int slot, const Packet& result) = 0;

  // Whose sum is complete.
  [[nodiscard]] virtual std::int64_t elements_done() const = 0;
  // Equal on all workers, or they do not call the same operation.
  [[nodiscard]] virtual std::uint32_t fingerprint() const = 0;
  // Turns beyond the first round of floats.
  [[nodiscard]] virtual std::int64_t extra_rounds() const { return 0; }
};

// `in` and `out` are as long as each other, and the same memory or apart; both outlive the operation.
[[nodiscard]] std::unique_ptr<Operation> make_sum(const Layout& layout, std::span<const std::int32_t> in,
                                                  std::span<std::int32_t> out);
[[nodiscard]] std::unique_ptr<Operation> make_sum(const Layout& layout, std::span<const float> in,
                                                  std::span<float> out);
[[nodiscard]] std::unique_ptr<Operation> make_sum(const Layout& layout, std::span<const mpi::Float16> in,
                                                  std::span<mpi::Float16> out);
[[nodiscard]] std::unique_ptr<Operation> make_sum(const Layout& layout, std::span<const mpi::BFloat16> in,
                                                  std::span<mpi::BFloat16> out);

}  // namespace weft::aggregation
