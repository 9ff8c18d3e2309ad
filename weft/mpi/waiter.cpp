#include "weft/mpi/waiter.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "weft/mpi/communicator.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"
#include "weft/mpi/options.h"
#include "weft/mpi/profiling.h"
#include "weft/mpi/request.h"
#include "weft/mpi/yield.h"

namespace weft::mpi {
namespace {

using Clock = std::chrono::steady_clock;

// State of a communicating thread. The watchdog thread reads it, so the fields that it reads are atomic.
struct Slot {
  std::atomic<const char*> name{nullptr};
  std::atomic<const char*> file{""};
  std::atomic<unsigned> line{0};
  std::atomic<int> rank{-1};
  std::atomic<std::int64_t> blocked_since_ms{0};  // 0 outside of uninterruptible MPI calls
  std::atomic<bool> warned{false};
  pthread_t thread = pthread_self();
  Clock::time_point operation_begin{};  // if a hook is installed
  Clock::time_point last_idle{};        // of the current wait
};

std::atomic<CallSiteHook> g_hook{nullptr};
std::atomic<InterruptHook> g_interrupt_hook{nullptr};
std::atomic<OperationHook> g_operation_hook{nullptr};
std::atomic<std::int64_t> g_waited_ns{0};

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count();
}

std::string site_of(const Slot& slot) {
  char text[512];
  if (const auto hook = g_hook.load()) {
    const std::size_t length = hook(static_cast<unsigned long>(slot.thread), text, sizeof text);
    if (length > 0) return {text, std::min(length, sizeof text)};
  }
  const char* file = slot.file.load();
  if (*file == '\0') return "an unknown location";
  return std::string(file) + ":" + std::to_string(slot.line.load());
}

// `otherwise` names the activity of a thread outside of all operations.
std::string describe(const Slot& slot, const char* otherwise = "communication") {
  const char* name = slot.name.load();
  return std::string(name != nullptr ? name : otherwise) + " called from " + site_of(slot);
}

// The rank for messages: in the communicator if there is one, otherwise in the world.
int rank_of(const Slot& slot, const Communicator* communicator = nullptr) {
  int rank = communicator != nullptr ? communicator->rank() : slot.rank.load();
  if (rank < 0 && Environment::alive()) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

void warn(int rank, std::int64_t seconds, const std::string& what) {
  std::fprintf(stderr, "weft: rank %d has waited %lld s in %s\n", rank, static_cast<long long>(seconds), what.c_str());
  std::fflush(stderr);
}

class Watchdog {
 public:
  static Watchdog& instance() {
    static auto* watchdog = new Watchdog();  // never destroyed: its thread may outlive static destruction
    return *watchdog;
  }
  void add(Slot* slot) {
    const std::lock_guard lock(mutex_);
    slots_.push_back(slot);
    if (!started_) std::thread([this] { run(); }).detach();
    started_ = true;
  }
  void remove(Slot* slot) {
    const std::lock_guard lock(mutex_);
    std::erase(slots_, slot);
  }

 private:
  void run() {
    for (;;) {
      const auto pause = std::min<std::chrono::milliseconds>(std::chrono::seconds(1), options().warn_after / 2);
      std::this_thread::sleep_for(std::max<std::chrono::milliseconds>(pause, std::chrono::milliseconds(20)));
      const std::lock_guard lock(mutex_);
      for (Slot* slot : slots_) inspect(*slot);
    }
  }
  static void inspect(Slot& slot) {
    const std::int64_t since = slot.blocked_since_ms.load();
    if (since == 0) return;
    const std::int64_t waited = now_ms() - since;
    if (waited >= options().warn_after.count() && !slot.warned.exchange(true)) {
      warn(rank_of(slot), waited / 1000, describe(slot) + " (inside MPI; all ranks had entered it)");
    }
    if (waited >= options().timeout.count()) {
      warn(rank_of(slot), waited / 1000,
           describe(slot) + ": a rank disappeared inside the operation, aborting the job");
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }

  std::mutex mutex_;
  std::vector<Slot*> slots_;
  bool started_ = false;
};

struct RegisteredSlot : Slot {
  RegisteredSlot() { Watchdog::instance().add(this); }
  ~RegisteredSlot() { Watchdog::instance().remove(this); }
};

Slot& this_thread() {
  thread_local RegisteredSlot slot;
  return slot;
}

struct IdleTasks {
  std::mutex mutex;
  std::vector<IdleTask*> tasks;
  std::atomic<std::size_t> count{0};  // a wait without tasks costs one load
};

IdleTasks& idle_tasks() {
  static auto* tasks = new IdleTasks();
  return *tasks;
}

}  // namespace

void IdleTask::enlist() {
  const auto guard = lock();
  idle_tasks().tasks.push_back(this);
  ++idle_tasks().count;
}

void IdleTask::delist() noexcept {
  const auto guard = lock();
  std::erase(idle_tasks().tasks, this);
  --idle_tasks().count;
}

std::unique_lock<std::mutex> IdleTask::lock() { return std::unique_lock(idle_tasks().mutex); }

void IdleTask::progress_all() {
  if (idle_tasks().count.load(std::memory_order_relaxed) == 0) return;
  const auto guard = lock();
  for (IdleTask* task : idle_tasks().tasks) task->progress();
}

// A rank may lose its core for a long time between two calls: MPI yields in each test if ranks outnumber cores.
// Therefore elapsed time decides when to yield and when to give up, never the number of calls.
void Waiter::idle() {
  constexpr auto kSpinning = std::chrono::microseconds(100);  // most waits end within this time, without a system call
  constexpr int kCheckInterval = 16;
  const bool check_now = calls_++ % kCheckInterval == 0;
  if (!check_now && !yielding_) return;
  const auto now = Clock::now();
  Slot& slot = this_thread();
  if (start_ == Clock::time_point{}) start_ = slot.last_idle = now;
  g_waited_ns += std::chrono::duration_cast<std::chrono::nanoseconds>(now - slot.last_idle).count();
  slot.last_idle = now;
  yielding_ = now - start_ >= kSpinning;
  if (!yielding_) return;
  yield_core();
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - start_);
  if (check_now || waited >= limit()) check_limits(waited);
}

std::chrono::milliseconds Waiter::limit() const {
  return context_.timeout.count() > 0 ? context_.timeout : options().timeout;
}

void Waiter::check_limits(std::chrono::milliseconds waited) {
  IdleTask::progress_all();
  Request::free_abandoned();
  check_interrupt(waited);
  if (context_.communicator != nullptr) context_.communicator->poll_alarm();
  if (waited > std::chrono::seconds(1)) std::this_thread::sleep_for(std::chrono::microseconds(100));
  const bool late = waited >= limit();
  if (!late && (warned_ || waited < options().warn_after)) return;
  const Slot& slot = this_thread();
  const int rank = rank_of(slot, context_.communicator);
  std::string what = describe(slot, context_.operation);
  if (context_.explain != nullptr) what += context_.explain(context_.subject);
  if (!warned_) warn(rank, waited.count() / 1000, what);
  warned_ = true;
  if (!late) return;
  throw TimeoutError("weft.TimeoutError: rank " + std::to_string(rank) + " gave up after " +
                     std::to_string(static_cast<double>(waited.count()) / 1000) + " s in " + what +
                     (context_.timeout.count() > 0 ? "" : "; WEFT_TIMEOUT sets the limit in seconds"));
}

void Waiter::check_interrupt(std::chrono::milliseconds waited) {
  constexpr std::chrono::milliseconds kInterval{50};
  if (waited < next_interrupt_check_) return;
  next_interrupt_check_ = waited + kInterval;
  if (const auto hook = g_interrupt_hook.load()) hook();
}

OperationScope::OperationScope(const char* name, const Communicator* communicator,
                               std::source_location where) noexcept {
  Slot& slot = this_thread();
  outermost_ = slot.name.load(std::memory_order_relaxed) == nullptr;
  if (!outermost_) return;
  if (g_operation_hook.load(std::memory_order_relaxed) != nullptr) slot.operation_begin = Clock::now();
  slot.file.store(where.file_name(), std::memory_order_relaxed);
  slot.line.store(where.line(), std::memory_order_relaxed);
  slot.rank.store(communicator != nullptr ? communicator->rank() : -1, std::memory_order_relaxed);
  slot.name.store(name, std::memory_order_release);
}

OperationScope::~OperationScope() {
  if (!outermost_) return;
  Slot& slot = this_thread();
  const auto hook = g_operation_hook.load(std::memory_order_relaxed);
  const auto begin = std::exchange(slot.operation_begin, Clock::time_point{});
  if (hook != nullptr && begin != Clock::time_point{}) hook(slot.name.load(std::memory_order_relaxed), begin);
  slot.name.store(nullptr, std::memory_order_relaxed);
  slot.file.store("", std::memory_order_relaxed);
  slot.rank.store(-1, std::memory_order_relaxed);
}

BlockingScope::BlockingScope() noexcept {
  Slot& slot = this_thread();
  slot.warned.store(false, std::memory_order_relaxed);
  slot.blocked_since_ms.store(now_ms(), std::memory_order_relaxed);
}

BlockingScope::~BlockingScope() { this_thread().blocked_since_ms.store(0, std::memory_order_relaxed); }

std::string current_operation() { return describe(this_thread()); }

std::string call_site() { return site_of(this_thread()); }

void set_call_site_hook(CallSiteHook hook) noexcept { g_hook = hook; }

void set_interrupt_hook(InterruptHook hook) noexcept { g_interrupt_hook = hook; }
void set_operation_hook(OperationHook hook) noexcept { g_operation_hook = hook; }

std::chrono::nanoseconds time_waited() noexcept { return std::chrono::nanoseconds(g_waited_ns.load()); }

}  // namespace weft::mpi
