// The message tag that the exchanges of a grid share.
#pragma once

#include <cstdint>

namespace weft::spatial {

// All exchanges of a grid use one number, so that persistent requests can be reused: the ranks agree on the order of
// exchanges, and messages match in that order. A failed exchange may leave messages or open receives behind. A rank
// that saw a failure proposes the next number, and all ranks adopt the largest proposal.
class Epoch {
 public:
  // Starts an exchange and returns the number that this rank proposes for it.
  [[nodiscard]] std::int64_t propose() noexcept {
    const std::int64_t proposal = finished_ ? number_ : number_ + 1;
    finished_ = false;
    return proposal;
  }
  void adopt(std::int64_t agreed) noexcept { number_ = agreed; }
  // Call when the exchange that propose() started has completed without leftover messages.
  void finish() noexcept { finished_ = true; }

 private:
  std::int64_t number_ = 0;
  bool finished_ = true;
};

}  // namespace weft::spatial
