// A Transport on weft/mpi: every wait can time out, and a peer's failure ends it.
#pragma once

#include <memory>
#include <vector>

#include "weft/mpi/request.h"
#include "weft/mpi/team.h"
#include "weft/multigrid/transport.h"

namespace weft::multigrid {

class MpiTransport final : public Transport {
 public:
  // The team's forward channel carries the states; nobody else may use it while a solve runs.
  explicit MpiTransport(std::shared_ptr<mpi::Team> team);

  [[nodiscard]] int rank() const override { return team_->rank(); }
  [[nodiscard]] int size() const override { return team_->size(); }
  void begin(std::uint64_t signature, bool failed, const std::string& description) override;
  [[nodiscard]] std::unique_ptr<Incoming> receive(int source, int level, std::optional<std::int64_t> bytes) override;
  void send(int dest, int level, std::optional<Packed> message, std::optional<std::int64_t> bytes) override;
  void progress() override;
  void finish() override;
  [[nodiscard]] std::unique_ptr<PendingAgreement> agree(double value, bool maximum, bool failed) override;
  [[nodiscard]] bool end(bool failed) override;
  [[nodiscard]] std::vector<std::string> gather(const std::string& text) override;
  void abandon(const std::string& cause) noexcept override;

 private:
  void send_bytes(int dest, int tag, std::span<const std::byte> bytes, std::shared_ptr<const void> owner);

  std::shared_ptr<mpi::Team> team_;
  std::vector<mpi::Request> sends_;
};

}  // namespace weft::multigrid
