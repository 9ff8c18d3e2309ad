// Pieces of memory to and from many ranks at once: what gather, scatter, all_gather and all_to_all are made of.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "weft/mpi/communicator.h"
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

// A piece came with another length than this rank was told; nothing of the exchange is left under way.
class LengthMismatch : public std::length_error {
 public:
  using std::length_error::length_error;
};
// What one says; `came` is a number of bytes, or "more".
[[nodiscard]] std::string length_disagreement(int source, const std::string& came, std::int64_t expected);

// Starts all transfers; both sides must name the same bytes, or the receiver ends in LengthMismatch. Pieces between the
// same two ranks arrive in the order given; those to this rank itself are copied at once. Empty pieces are not sent.
// The memory must live until the operation ends: `keep` does so.
[[nodiscard]] std::unique_ptr<Operation> exchange(const std::vector<Outgoing>& outgoing,
                                                  const std::vector<Incoming>& incoming, int tag, CommunicatorView comm,
                                                  std::shared_ptr<void> keep = nullptr);

}  // namespace weft::mpi
