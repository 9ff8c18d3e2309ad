// PersistentExchange: an exchange that repeats. Its requests are created once for fixed memory and started each time.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "weft/mpi/message/exchange.h"

namespace weft::mpi {

// Like exchange(), but to other ranks only. Exchanges with the same tag match in the order in which they start, so all
// ranks must start them in the same order.
class PersistentExchange final : public Operation {
 public:
  // Creates the requests without starting them. `keep` owns the memory.
  PersistentExchange(const std::vector<Outgoing>& outgoing, const std::vector<Incoming>& incoming, int tag,
                     CommView comm, std::shared_ptr<void> keep);
  // Does not block. If the exchange is in progress, its memory stays alive, as in an abandoned Request.
  ~PersistentExchange() override;

  // Must not be called while the exchange is in progress.
  void start();
  // After a LengthMismatch no message of the exchange is in flight.
  [[nodiscard]] bool advance() override;
  [[nodiscard]] bool under_way() const noexcept { return under_way_ > 0; }
  // Whether the exchange was created for this channel and tag.
  [[nodiscard]] bool is_for(CommView comm, int tag) const noexcept;

 private:
  struct Message {
    MPI_Request request = MPI_REQUEST_NULL;
    int source = -1;  // source of a receive
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
