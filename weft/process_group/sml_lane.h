// The thread that carries a group's sums to the switch, one after the other in program order, while the caller
// computes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "weft/process_group/sml_link.h"
#include "weft/process_group/sml_watch.h"

namespace weft::process_group {

class Lane {
 public:
  struct Task {
    std::function<void(aggregation::WorkerSession&)> run;
    std::function<void(std::exception_ptr)> conclude;  // told once, how it ended
    std::string title;                                 // for messages
    std::int64_t elements = 0;
    std::shared_ptr<std::atomic<std::int64_t>> done;  // elements of tensors that are finished
  };

  Lane(std::unique_ptr<Link> link, Notice notice, const WatchOptions& watch);
  // Ends what runs.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Throws if an earlier task failed: the ranks are then out of step.
  void add(Task task);
  // Ends what runs and waits, refuses what comes, and lets the other ranks know.
  void give_up(const std::string& reason);
  // Lets the last sums reach the other ranks, then ends.
  void close();
  [[nodiscard]] bool usable() const;
  [[nodiscard]] aggregation::WorkerStatistics statistics() const { return link_->session().statistics(); }

 private:
  void run();
  void carry_out(Task& task);
  // As give_up(), but among ourselves; false if it was so before.
  bool stop(const std::string& reason);

  std::unique_ptr<Link> link_;
  Notice notice_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool closing_ = false;
  std::string reason_;  // why it cannot be used; empty while it can
  SumWatch watch_;
  std::thread thread_;
};

}  // namespace weft::process_group
