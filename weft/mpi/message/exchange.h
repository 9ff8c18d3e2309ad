// exchange(): sends to and receives from many ranks at once. Gather, scatter, all_gather and all_to_all build on it.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "weft/mpi/comm.h"
#include "weft/mpi/operation.h"

namespace weft::mpi {

struct Outgoing {
  int dest;
  const void* data;
  std::int64_t bytes;
};
struct Incoming {
  int source;
  void* data;
  std::int64_t bytes;
};

// A piece did not have the expected length. No transfer of the exchange is left in flight.
class LengthMismatch : public std::length_error {
 public:
  using std::length_error::length_error;
};
// The text of a LengthMismatch. `received` is a number of bytes, or "more".
[[nodiscard]] std::string length_mismatch_text(int source, const std::string& received, std::int64_t expected);

// Starts all transfers. Both sides must pass the same number of bytes; otherwise the operation throws LengthMismatch at
// the receiver. Pieces between two ranks arrive in the order given. Pieces to this rank are copied at once. Empty
// pieces are not sent. `keep` owns the memory of all pieces: messages that are still in flight when the operation is
// destroyed refer to it.
[[nodiscard]] std::unique_ptr<Operation> exchange(const std::vector<Outgoing>& outgoing,
                                                  const std::vector<Incoming>& incoming, int tag, CommView comm,
                                                  std::shared_ptr<void> keep);

}  // namespace weft::mpi
