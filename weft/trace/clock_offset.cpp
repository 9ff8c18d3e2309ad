#include "weft/trace/clock_offset.h"

#include <limits>

#include "weft/trace/span.h"

namespace weft::trace {
namespace {

constexpr int kRounds = 20;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

// Runs on rank 0. The reply was sent between the request and its receipt; the midpoint is off by at most half of that.
void measure(int rank, const mpi::MessageChannel& channel) {
  ClockOffset best{0, std::numeric_limits<std::int64_t>::max()};
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t sent = now_ns();
    channel.send_value(sent, rank);
    const auto remote = channel.receive_value<std::int64_t>(rank);
    const std::int64_t half = (now_ns() - sent + 1) / 2;
    if (half < best.uncertainty_ns) best = {sent + half - remote, half};
  }
  channel.send_value(best, rank);
}

ClockOffset reply(const mpi::MessageChannel& channel) {
  for (int round = 0; round < kRounds; ++round) {
    static_cast<void>(channel.receive_value<std::int64_t>(0));
    channel.send_value(now_ns(), 0);
  }
  return channel.receive_value<ClockOffset>(0);
}

}  // namespace

ClockOffset clock_offset(const mpi::MessageChannel& channel) {
  if (channel.rank() != 0) return reply(channel);
  for (int rank = 1; rank < channel.size(); ++rank) measure(rank, channel);
  return {};
}

}  // namespace weft::trace
