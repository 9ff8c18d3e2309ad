// LocalTransport: the transport of a solve in one process, without MPI.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/multigrid/transport.h"

namespace weft::multigrid {

// One rank sends no states; reductions return this rank's value.
class LocalTransport final : public Transport {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  void begin(std::uint64_t signature, bool failed, const std::string& description) override;
  [[nodiscard]] std::unique_ptr<IncomingState> receive(int source, int level,
                                                       std::optional<std::int64_t> bytes) override;
  void send(int dest, int level, std::optional<Packed> message, std::optional<std::int64_t> bytes) override;
  void progress() override {}
  void finish() override {}
  [[nodiscard]] std::unique_ptr<PendingReduction> reduce(double value, bool maximum, bool failed) override;
  [[nodiscard]] bool end(bool failed) override { return failed; }
  [[nodiscard]] std::vector<std::string> gather(const std::string& text) override { return {text}; }
  void abandon(const std::string& /*cause*/) noexcept override {}
};

}  // namespace weft::multigrid
