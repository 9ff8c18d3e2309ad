// The same exchange again and again: requests that are made once for fixed memory and started each time.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "weft/mpi/exchange.h"

namespace weft::mpi {

// As exchange(), but to other ranks only. Exchanges that use the same tag match in the order in which they were
// started, so all ranks must start theirs in the same order.
class PersistentExchange final : public Operation {
 public:
  // `keep` owns the memory. Starts nothing.
  PersistentExchange(const std::vector<Outgoing>& outgoing, const std::vector<Incoming>& incoming, int tag,
                     CommunicatorView comm, std::shared_ptr<void> keep);
  // One that is still under way neither blocks nor frees its memory, as an abandoned Request.
  ~PersistentExchange() override;

  // Not while it is under way.
  void start();
  // After a LengthMismatch nothing of it is under way.
  [[nodiscard]] bool advance() override;
  [[nodiscard]] bool under_way() const noexcept { return under_way_ > 0; }
  // Whether it was made for this channel and tag.
  [[nodiscard]] bool is_for(CommunicatorView comm, int tag) const noexcept;

 private:
  struct Message {
    MPI_Request request = MPI_REQUEST_NULL;
    int source = -1;  // of a receive
    int bytes = 0;
    bool under_way = false;
  };

  void receive(const Incoming& piece);
  void send(const Outgoing& piece);
  void test(Message& message);

  MPI_Comm comm_;
  int tag_;
  std::shared_ptr<void> keep_;
  std::vector<Message> messages_;
  std::size_t under_way_ = 0;
  std::string complaint_;
};

}  // namespace weft::mpi
