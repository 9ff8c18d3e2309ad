// MpiTransport: a Transport over weft/mpi. Waits time out, and the failure of a peer interrupts them.
#pragma once

#include <memory>
#include <vector>

#include "weft/mpi/communicator.h"
#include "weft/mpi/request.h"
#include "weft/multigrid/transport.h"

namespace weft::multigrid {

class MpiTransport final : public Transport {
 public:
  // States use the communicator's forward channel, which must have no other user while a solve runs.
  // Throws std::invalid_argument if `communicator` is null.
  explicit MpiTransport(std::shared_ptr<Communicator> communicator);

  [[nodiscard]] int rank() const override { return communicator_->rank(); }
  [[nodiscard]] int size() const override { return communicator_->size(); }
  void begin(std::uint64_t signature, bool failed, const std::string& description) override;
  [[nodiscard]] std::unique_ptr<IncomingState> receive(int source, int level,
                                                       std::optional<std::int64_t> bytes) override;
  void send(int dest, int level, std::optional<Packed> message, std::optional<std::int64_t> bytes) override;
  void progress() override;
  void finish() override;
  [[nodiscard]] std::unique_ptr<PendingReduction> reduce(double value, bool maximum, bool failed) override;
  [[nodiscard]] bool end(bool failed) override;
  [[nodiscard]] std::vector<std::string> gather(const std::string& text) override;
  void abandon(const std::string& cause) noexcept override;

 private:
  void send_bytes(int dest, int tag, std::span<const std::byte> bytes, std::shared_ptr<const void> owner);

  std::shared_ptr<Communicator> communicator_;
  std::vector<mpi::Request> sends_;
};

}  // namespace weft::multigrid
