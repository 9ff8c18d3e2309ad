// Waiter: a wait that never hangs silently. It spins, yields, prints a warning and finally throws TimeoutError.
#pragma once

#include <chrono>
#include <mutex>
#include <source_location>
#include <string>

namespace weft::mpi {

class Communicator;

// Describes a wait in messages. The strings must outlive the wait.
struct WaitContext {
  const char* operation = "communication";
  Communicator* communicator = nullptr;  // its alarms interrupt the wait and messages name its rank; may be null
  // Called with `subject` to add details such as "waiting for ranks 1, 3" to messages; may be null.
  std::string (*explain)(const void*) = nullptr;
  const void* subject = nullptr;
  // Limit of this wait; zero means Options::timeout.
  std::chrono::milliseconds timeout{0};
};

// Work that every wait of this process does while idle, so that a transfer makes progress while its rank waits
// elsewhere.
class IdleTask {
 public:
  IdleTask(const IdleTask&) = delete;
  IdleTask& operator=(const IdleTask&) = delete;

 protected:
  IdleTask() = default;
  ~IdleTask() = default;
  // Between enlist() and delist(), any wait may call progress(). Call enlist() last in the constructor and delist()
  // first in the destructor.
  void enlist();
  void delist() noexcept;
  // Must be short and never block. Any thread may call it, holding the lock of lock().
  virtual void progress() = 0;
  // Excludes progress() calls of other threads while the owner uses the same data.
  [[nodiscard]] static std::unique_lock<std::mutex> lock();

 private:
  friend class Waiter;
  static void progress_all();
};

class Waiter {
 public:
  explicit Waiter(const WaitContext& context) : context_(context) {}

  // Call it after every unsuccessful test. Throws TimeoutError after Options::timeout, PeerLost if a peer raised an
  // alarm, and the exception of the InterruptHook.
  void idle();

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] std::chrono::milliseconds limit() const;
  void check_limits(std::chrono::milliseconds waited);
  void check_interrupt(std::chrono::milliseconds waited);

  WaitContext context_;
  unsigned calls_ = 0;
  bool yielding_ = false;
  bool warned_ = false;
  Clock::time_point start_{};
  std::chrono::milliseconds next_interrupt_check_{50};
};

// Names the current operation of a thread in errors, warnings and watchdog messages. Scopes nest; the outermost one
// names the call.
class OperationScope {
 public:
  OperationScope(const char* name, const Communicator* communicator,
                 std::source_location where = std::source_location::current()) noexcept;
  ~OperationScope();
  OperationScope(const OperationScope&) = delete;
  OperationScope& operator=(const OperationScope&) = delete;

 private:
  bool outermost_;
};

// Marks a call into MPI that cannot be interrupted. A watchdog thread warns like Waiter and calls MPI_Abort after
// Options::timeout: by then a peer has agreed to the operation and disappeared inside it.
class BlockingScope {
 public:
  BlockingScope() noexcept;
  ~BlockingScope();
  BlockingScope(const BlockingScope&) = delete;
  BlockingScope& operator=(const BlockingScope&) = delete;
};

// The current operation of the calling thread, e.g. "all_reduce called from train.py:12".
[[nodiscard]] std::string current_operation();

// The call site of the calling thread's outermost operation.
[[nodiscard]] std::string call_site();

// Lets a language binding provide call sites. The hook writes at most `capacity` characters about the thread with the
// given pthread id and returns their number, or 0 if it does not know the thread.
using CallSiteHook = std::size_t (*)(unsigned long thread, char* text, std::size_t capacity);
void set_call_site_hook(CallSiteHook hook) noexcept;

// Lets a language binding end waits, for example after Ctrl-C. Every waiting thread calls the hook a few times per
// second. It throws an exception that is derived from Interrupted, or returns.
using InterruptHook = void (*)();
void set_interrupt_hook(InterruptHook hook) noexcept;

}  // namespace weft::mpi
