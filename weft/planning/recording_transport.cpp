#include "weft/planning/recording_transport.h"

#include <stdexcept>
#include <utility>

namespace weft::planning {

class RecordingTransport::Incoming final : public multigrid::IncomingState {
 public:
  Incoming(RecordingTransport& transport, int source, int level)
      : transport_(transport), source_(source), level_(level) {}

  std::optional<multigrid::Packed> wait() override {
    auto& messages = transport_.mail_[{source_, transport_.rank_, level_}];
    if (messages.empty()) throw std::logic_error("plan: a solve receives a message from a later rank");
    planning::receive(transport_.tasks_, transport_.real(source_), level_);
    std::optional<multigrid::Packed> message = std::move(messages.front());
    messages.pop_front();
    return message;
  }

 private:
  RecordingTransport& transport_;
  int source_;
  int level_;
};

class RecordingTransport::Reduction final : public multigrid::PendingReduction {
 public:
  explicit Reduction(Tasks& tasks) : tasks_(tasks) {}
  multigrid::ReductionResult wait() override {
    tasks_.push_back({.kind = Task::Kind::kWait});
    return {1, false};
  }

 private:
  Tasks& tasks_;
};

void RecordingTransport::begin(std::uint64_t /*signature*/, bool failed, const std::string& description) {
  if (failed) throw std::invalid_argument(description);
  synchronize(tasks_);
}

std::unique_ptr<multigrid::IncomingState> RecordingTransport::receive(int source, int level,
                                                                      std::optional<std::int64_t> /*bytes*/) {
  return std::make_unique<Incoming>(*this, source, level);
}

void RecordingTransport::send(int dest, int level, std::optional<multigrid::Packed> message,
                              std::optional<std::int64_t> bytes) {
  planning::send(tasks_, real(dest), level, bytes.value_or(0));
  mail_[{rank_, dest, level}].push_back(std::move(message));
}

std::unique_ptr<multigrid::PendingReduction> RecordingTransport::reduce(double /*value*/, bool /*maximum*/,
                                                                        bool /*failed*/) {
  tasks_.push_back({.kind = Task::Kind::kJoin, .bytes = sizeof(double)});
  return std::make_unique<Reduction>(tasks_);
}

bool RecordingTransport::end(bool failed) {
  synchronize(tasks_);
  return failed;
}

std::vector<std::string> RecordingTransport::gather(const std::string& text) {
  return std::vector<std::string>(static_cast<std::size_t>(size_), text);
}

void RecordingTransport::abandon(const std::string& /*cause*/) noexcept {}

}  // namespace weft::planning
