// The number under which the exchanges of a grid travel.
#pragma once

#include <cstdint>

namespace weft::spatial {

// All exchanges of a grid share one, so that requests made once can serve again: messages match in the order of the
// exchanges, on which the ranks agree. One that failed may have left messages behind, or receives that wait for some;
// whoever saw that proposes the next number, and the largest of the ranks' proposals is everybody's.
class Epoch {
 public:
  // Begins an exchange.
  [[nodiscard]] std::int64_t propose() noexcept {
    const std::int64_t proposal = finished_ ? number_ : number_ + 1;
    finished_ = false;
    return proposal;
  }
  void adopt(std::int64_t agreed) noexcept { number_ = agreed; }
  // The exchange that propose() began is over, with nothing left of it.
  void finish() noexcept { finished_ = true; }

 private:
  std::int64_t number_ = 0;
  bool finished_ = true;
};

}  // namespace weft::spatial
