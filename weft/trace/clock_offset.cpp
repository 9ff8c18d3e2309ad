#include "weft/trace/clock_offset.h"

#include <limits>

#include "weft/trace/span.h"

namespace weft::trace {
namespace {

constexpr int kRounds = 20;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

// On rank 0. The answer was written somewhere between asking and hearing it: in the middle, give or take half.
ClockOffset ask(int rank, const Conversation& talk) {
  ClockOffset best{0, std::numeric_limits<std::int64_t>::max()};
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t asked = now_ns();
    talk.send(bytes_of(asked), rank);
    const std::int64_t answer = number_in(talk.receive(sizeof(std::int64_t), rank));
    const std::int64_t half = (now_ns() - asked + 1) / 2;
    if (half < best.uncertainty_ns) best = {asked + half - answer, half};
  }
  talk.send(bytes_of(best.offset_ns) + bytes_of(best.uncertainty_ns), rank);
  return best;
}

ClockOffset answer(const Conversation& talk) {
  for (int round = 0; round < kRounds; ++round) {
    static_cast<void>(talk.receive(sizeof(std::int64_t), 0));
    talk.send(bytes_of(now_ns()), 0);
  }
  const std::string found = talk.receive(2 * sizeof(std::int64_t), 0);
  return {number_in(found, 0), number_in(found, 1)};
}

}  // namespace

ClockOffset clock_offset(const Conversation& talk) {
  if (talk.rank() != 0) return answer(talk);
  for (int rank = 1; rank < talk.size(); ++rank) static_cast<void>(ask(rank, talk));
  return {};
}

}  // namespace weft::trace
