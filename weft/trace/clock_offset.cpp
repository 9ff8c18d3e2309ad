#include "weft/trace/clock_offset.h"

#include <array>
#include <limits>

#include "weft/mpi/error.h"
#include "weft/trace/span.h"

namespace weft::trace {
namespace {

constexpr int kRounds = 20;
constexpr int kTag = 1;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

void send(const std::int64_t* numbers, int count, int rank, MPI_Comm comm) {
  mpi::check(MPI_Send(numbers, count, MPI_INT64_T, rank, kTag, comm), "MPI_Send");
}

void receive(std::int64_t* numbers, int count, int rank, MPI_Comm comm) {
  mpi::check(MPI_Recv(numbers, count, MPI_INT64_T, rank, kTag, comm, MPI_STATUS_IGNORE), "MPI_Recv");
}

// On rank 0. The answer was written somewhere between asking and hearing it: in the middle, give or take half.
ClockOffset ask(int rank, MPI_Comm comm) {
  ClockOffset best{0, std::numeric_limits<std::int64_t>::max()};
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t asked = now_ns();
    std::int64_t answer = 0;
    send(&asked, 1, rank, comm);
    receive(&answer, 1, rank, comm);
    const std::int64_t half = (now_ns() - asked + 1) / 2;
    if (half < best.uncertainty_ns) best = {asked + half - answer, half};
  }
  const std::array<std::int64_t, 2> found{best.offset_ns, best.uncertainty_ns};
  send(found.data(), 2, rank, comm);
  return best;
}

ClockOffset answer(MPI_Comm comm) {
  for (int round = 0; round < kRounds; ++round) {
    std::int64_t asked = 0;
    receive(&asked, 1, 0, comm);
    const std::int64_t now = now_ns();
    send(&now, 1, 0, comm);
  }
  std::array<std::int64_t, 2> found{};
  receive(found.data(), 2, 0, comm);
  return {found[0], found[1]};
}

}  // namespace

ClockOffset clock_offset(mpi::CommunicatorView comm) {
  const mpi::Communicator own = comm.dup("trace");
  if (own.rank() != 0) return answer(own.handle());
  for (int rank = 1; rank < own.size(); ++rank) (void)ask(rank, own.handle());
  return {};
}

}  // namespace weft::trace
