// The thread that carries on communication nobody waits for, so that it overlaps with computing.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace weft::mpi {

// One per process, started by the first task. Sleeps while there is nothing to do, polls often while tasks move and
// ever more seldom while they wait for other ranks.
class ProgressThread {
 public:
  // Goes on as far as possible without waiting; true once finished. Must not throw.
  using Task = std::function<bool()>;

  [[nodiscard]] static ProgressThread& instance();

  void add(Task task);
  // Ends the thread; unfinished tasks are dropped. Before MPI is finalised this happens by itself.
  void stop();
  // Tasks not finished yet (for tests).
  [[nodiscard]] std::size_t pending();

 private:
  ProgressThread() = default;
  void run();
  bool take_new(bool wait);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Task> added_;
  std::vector<Task> tasks_;  // the thread's own
  std::size_t unfinished_ = 0;
  std::thread thread_;
  bool stopping_ = false;
};

}  // namespace weft::mpi
