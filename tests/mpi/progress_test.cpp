// ProgressThread: advances tasks in the background and sleeps while idle.
#include "weft/mpi/progress.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "weft/mpi/comm.h"
#include "weft/mpi/direct_reduce.h"

namespace weft::mpi {
namespace {

using namespace std::chrono_literals;

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void until_idle() {
  while (ProgressThread::instance().pending() > 0) std::this_thread::sleep_for(1ms);
}

TEST(Progress, AdvancesTasksInTheBackground) {
  const UniqueComm comm = CommView::world().dup("progress");
  TagSequence tags(comm.tag_upper_bound());
  std::vector<float> data(200'000, 1);
  const std::shared_ptr<Operation> operation =
      direct_all_reduce(data.data(), 200'000, Datatype::kFloat32, ReduceOp::kSum, comm, tags, nullptr);
  std::atomic<bool> done{false};
  ProgressThread::instance().add([&, operation] {
    if (!operation->advance()) return false;
    done = true;
    return true;
  });
  until_idle();
  EXPECT_TRUE(done);
  EXPECT_EQ(data, std::vector<float>(200'000, static_cast<float>(comm.size())));
}

TEST(Progress, TasksMayAddTasks) {
  std::atomic<int> ran{0};
  ProgressThread::instance().add([&] {
    ++ran;
    ProgressThread::instance().add([&] { return ++ran > 0; });
    return true;
  });
  until_idle();
  EXPECT_EQ(ran, 2);
}

TEST(Progress, SleepsWhileIdle) {
  ProgressThread::instance().add([] { return true; });
  until_idle();
  std::this_thread::sleep_for(100ms);
  const double before = cpu_seconds();
  std::this_thread::sleep_for(1s);
  EXPECT_LT(cpu_seconds() - before, 0.01);
}

TEST(Progress, PollsRarelyWhileWaitingForOtherRanks) {
  std::atomic<bool> over{false};
  ProgressThread::instance().add([&] { return over.load(); });
  std::this_thread::sleep_for(200ms);
  const double before = cpu_seconds();
  std::this_thread::sleep_for(1s);
  EXPECT_LT(cpu_seconds() - before, 0.15);  // it polls every half millisecond
  over = true;
  until_idle();
}

}  // namespace
}  // namespace weft::mpi
