// Queue and thread that run a group's sums through the switch in program order while the caller computes.
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

#include "weft/process_group/sml/link.h"
#include "weft/process_group/sml/stall_monitor.h"

namespace weft::process_group {

class AggregationQueue {
 public:
  struct Task {
    std::function<void(aggregation::WorkerSession&)> run;
    std::function<void(std::exception_ptr)> conclude;  // called once with the error, or null
    std::string title;                                 // name in messages
    std::int64_t elements = 0;
    std::shared_ptr<std::atomic<std::int64_t>> done;  // elements of finished tensors
  };

  AggregationQueue(std::unique_ptr<Link> link, AbortFlag notice, const StallMonitorOptions& monitor);
  // Cancels the running sum.
  ~AggregationQueue();
  AggregationQueue(const AggregationQueue&) = delete;
  AggregationQueue& operator=(const AggregationQueue&) = delete;

  // Throws if an earlier task failed, because the ranks are then out of step.
  void add(Task task);
  // Cancels running and queued tasks, rejects new ones and notifies the other ranks.
  void give_up(const std::string& reason);
  // Finishes queued tasks, serves peers that missed the last sum, and stops the thread. Tasks that make no progress for
  // a few seconds, because a peer does not answer, are cancelled like in give_up().
  void close();
  [[nodiscard]] bool usable() const;
  [[nodiscard]] aggregation::WorkerStatistics statistics() const { return link_->session().statistics(); }

 private:
  void run();
  void execute(Task& task);
  // Waits until the thread has run all tasks, or until they make no progress.
  void wait_for_tasks();
  // Like give_up(), without notifying other ranks. Returns false if the queue had already stopped.
  bool stop(const std::string& reason);

  std::unique_ptr<Link> link_;
  AbortFlag abort_flag_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool closing_ = false;
  bool idle_ = false;          // all tasks have run after closing_ was set
  std::int64_t finished_ = 0;  // number of tasks
  std::string reason_;         // why the queue stopped; empty while it is usable
  StallMonitor monitor_;
  std::thread thread_;
};

}  // namespace weft::process_group
