#include "weft/multigrid/local_transport.h"

#include <stdexcept>

namespace weft::multigrid {
namespace {

class LocalReduction final : public PendingReduction {
 public:
  explicit LocalReduction(ReductionResult result) : result_(result) {}
  ReductionResult wait() override { return result_; }

 private:
  ReductionResult result_;
};

}  // namespace

void LocalTransport::begin(std::uint64_t /*signature*/, bool failed, const std::string& description) {
  if (failed) throw std::invalid_argument(description);
}

std::unique_ptr<IncomingState> LocalTransport::receive(int /*source*/, int /*level*/,
                                                       std::optional<std::int64_t> /*bytes*/) {
  throw std::logic_error("multigrid: a single process receives no states");
}

void LocalTransport::send(int /*dest*/, int /*level*/, std::optional<Packed> /*message*/,
                          std::optional<std::int64_t> /*bytes*/) {
  throw std::logic_error("multigrid: a single process sends no states");
}

std::unique_ptr<PendingReduction> LocalTransport::reduce(double value, bool /*maximum*/, bool failed) {
  return std::make_unique<LocalReduction>(ReductionResult{value, failed});
}

}  // namespace weft::multigrid
