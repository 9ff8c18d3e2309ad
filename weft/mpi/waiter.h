// Waiting that never hangs silently: spins, yields, says who waits in what, and throws when it lasts too long.
#pragma once

#include <chrono>
#include <mutex>
#include <source_location>
#include <string>

namespace weft::mpi {

class Team;

// What is being waited for; names must outlive the wait.
struct WaitContext {
  const char* operation = "communication";
  Team* team = nullptr;  // whose alarms interrupt the wait, and whose rank is named; may be null
  // Called once before TimeoutError is thrown, to say more ("waiting for ranks 1, 3"); may be null.
  std::string (*explain)(const void*) = nullptr;
  const void* subject = nullptr;
  // How long this wait may last; zero: Options::timeout.
  std::chrono::milliseconds timeout{0};
};

// Work that every wait of this process does on the side, so that a transfer can go on while its rank waits elsewhere.
class IdleTask {
 public:
  IdleTask(const IdleTask&) = delete;
  IdleTask& operator=(const IdleTask&) = delete;

 protected:
  IdleTask() = default;
  ~IdleTask() = default;
  // Between these two progress() may be called: the last thing in a constructor, the first in a destructor.
  void enlist();
  void delist() noexcept;
  // Brief, never blocks; called by any thread, under the lock that lock() gives.
  virtual void progress() = 0;
  // Keeps other threads' waits out while the owner works on what progress() touches.
  [[nodiscard]] static std::unique_lock<std::mutex> lock();

 private:
  friend class Waiter;
  static void progress_all();
};

class Waiter {
 public:
  explicit Waiter(const WaitContext& context) : context_(context) {}

  // To be called after every test that found nothing. Throws TimeoutError after Options::timeout and PeerLost
  // when a peer raised an alarm.
  void idle();

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] std::chrono::milliseconds limit() const;
  void look_around(std::chrono::milliseconds waited);

  WaitContext context_;
  unsigned calls_ = 0;
  bool yielding_ = false;
  bool warned_ = false;
  Clock::time_point start_{};
};

// The operation a thread is in, so that errors, waits and the watchdog can name it. Scopes nest; the outermost
// names the call.
class OperationScope {
 public:
  OperationScope(const char* name, const Team* team,
                 std::source_location where = std::source_location::current()) noexcept;
  ~OperationScope();
  OperationScope(const OperationScope&) = delete;
  OperationScope& operator=(const OperationScope&) = delete;

 private:
  bool outermost_;
};

// Marks a call into MPI that cannot be interrupted. A watchdog thread warns as Waiter does and ends the job by
// MPI_Abort after Options::timeout: by then a peer has agreed to the operation and vanished inside it.
class BlockingScope {
 public:
  BlockingScope() noexcept;
  ~BlockingScope();
  BlockingScope(const BlockingScope&) = delete;
  BlockingScope& operator=(const BlockingScope&) = delete;
};

// "all_reduce called from train.py:12" for the operation the calling thread is in.
[[nodiscard]] std::string current_operation();

// Where the calling thread's outermost operation was called from.
[[nodiscard]] std::string call_site();

// A language binding tells call sites of its own: writes at most `capacity` characters about the thread with the
// given pthread id and returns how many, 0 if it knows nothing.
using CallSiteHook = std::size_t (*)(unsigned long thread, char* text, std::size_t capacity);
void set_call_site_hook(CallSiteHook hook) noexcept;

}  // namespace weft::mpi
