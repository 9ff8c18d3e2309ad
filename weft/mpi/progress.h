// ProgressThread: advances communication in the background, so that it overlaps with computation.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace weft::mpi {

// Each process has one, started by the first task. It sleeps while there are no tasks, polls often while tasks make
// progress, and polls less and less often while they wait for other ranks.
class ProgressThread {
 public:
  // Advances as far as possible without waiting. Returns true once finished. Must not throw.
  using Task = std::function<bool()>;

  [[nodiscard]] static ProgressThread& instance();

  void add(Task task);
  // Stops the thread and drops unfinished tasks. Called automatically before MPI is finalised.
  void stop();
  // The number of unfinished tasks, for tests.
  [[nodiscard]] std::size_t pending();

 private:
  ProgressThread() = default;
  void run();
  bool take_new(bool wait);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Task> added_;
  std::vector<Task> tasks_;  // used by the thread only
  std::size_t unfinished_ = 0;
  std::thread thread_;
  bool stopping_ = false;
};

}  // namespace weft::mpi
