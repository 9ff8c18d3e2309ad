// RecordingTransport: records the messages and reductions of a solve as tasks, for ranks that run one after the other.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "weft/multigrid/transport.h"
#include "weft/planning/task_graph.h"

namespace weft::planning {

// Messages on their way between the ranks, by source, destination and level.
using Mail = std::map<std::tuple<int, int, int>, std::deque<std::optional<multigrid::Packed>>>;

// In a multigrid solve, messages go only from lower to higher ranks, so each rank finds its messages in `mail` if all
// lower ranks have finished. Reductions return 1 on all ranks.
class RecordingTransport final : public multigrid::Transport {
 public:
  // `reversed`: the solve counts the ranks backward; the tasks name the real ones.
  RecordingTransport(int rank, int size, bool reversed, Mail& mail, Tasks& tasks)
      : rank_(rank), size_(size), reversed_(reversed), mail_(mail), tasks_(tasks) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  void begin(std::uint64_t signature, bool failed, const std::string& description) override;
  [[nodiscard]] std::unique_ptr<multigrid::IncomingState> receive(int source, int level,
                                                                  std::optional<std::int64_t> bytes) override;
  void send(int dest, int level, std::optional<multigrid::Packed> message, std::optional<std::int64_t> bytes) override;
  void progress() override {}
  void finish() override {}
  [[nodiscard]] std::unique_ptr<multigrid::PendingReduction> reduce(double value, bool maximum, bool failed) override;
  [[nodiscard]] bool end(bool failed) override;
  [[nodiscard]] std::vector<std::string> gather(const std::string& text) override;
  void abandon(const std::string& cause) noexcept override;

 private:
  class Incoming;
  class Reduction;
  [[nodiscard]] int real(int rank) const { return reversed_ ? size_ - 1 - rank : rank; }

  int rank_;
  int size_;
  bool reversed_;
  Mail& mail_;
  Tasks& tasks_;
};

}  // namespace weft::planning
