#include "weft/trace/recording.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <set>

#include "weft/mpi/profiling.h"

namespace weft::trace {
namespace {

std::int64_t nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

// Ring buffer of one thread's events. Its lock is contended only while a reader copies the events.
class Ring {
 public:
  void reset(std::size_t capacity) {
    const std::lock_guard lock(mutex_);
    capacity_ = std::max<std::size_t>(capacity, 1);
    kept_.events.clear();
    kept_.dropped = 0;
    next_ = 0;
  }
  void add(const Event& event) {
    const std::lock_guard lock(mutex_);
    if (kept_.events.size() < capacity_) {
      kept_.events.push_back(event);
      return;
    }
    kept_.events[next_] = event;
    next_ = (next_ + 1) % capacity_;
    ++kept_.dropped;
  }
  void set_name(const std::string& name) {
    const std::lock_guard lock(mutex_);
    kept_.name = name;
  }
  [[nodiscard]] bool is_called(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return kept_.name == name;
  }
  [[nodiscard]] bool is_empty() const {
    const std::lock_guard lock(mutex_);
    return kept_.events.empty();
  }
  [[nodiscard]] ThreadEvents copy() const {
    const std::lock_guard lock(mutex_);
    ThreadEvents result = kept_;
    std::rotate(result.events.begin(), result.events.begin() + static_cast<std::ptrdiff_t>(next_), result.events.end());
    return result;
  }

 private:
  mutable std::mutex mutex_;
  ThreadEvents kept_;
  std::size_t capacity_ = 1;
  std::size_t next_ = 0;  // index of the next event; that of the oldest one once the ring is full
};

// Rings outlive their threads, since recorded() reports threads that have ended.
struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<Ring>> rings;
  std::size_t capacity = 1;
};

Registry& registry() {
  static auto* const instance = new Registry;  // never destroyed: threads may record until the process ends
  return *instance;
}

std::shared_ptr<Ring> new_ring() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  auto ring = std::make_shared<Ring>();
  ring->reset(all.capacity);
  const bool is_main = gettid() == getpid();
  if (is_main) ring->set_name("main");
  all.rings.insert(is_main ? all.rings.begin() : all.rings.end(), ring);
  return ring;
}

std::shared_ptr<Ring>& own_ring() {
  thread_local std::shared_ptr<Ring> ring = new_ring();
  return ring;
}

// Records communication: all_reduce, halo_exchange and so on.
void record_operation(const char* name, Clock::time_point begin) noexcept {
  try {
    detail::record(name, begin, Span::kNoDetail);
  } catch (const std::bad_alloc&) {  // the trace lacks this event
  }
}

// Only the registry refers to the ring of a thread that has ended.
bool has_ended(const std::shared_ptr<Ring>& ring) { return ring.use_count() == 1; }

}  // namespace

namespace detail {

std::atomic<bool> recording{false};

void record(const char* name, Clock::time_point begin, std::int64_t detail) {
  const auto end = Clock::now();
  if (!trace::recording()) return;  // recording stopped during the span
  own_ring()->add({name, nanoseconds(begin.time_since_epoch()), nanoseconds(end - begin), detail});
}

}  // namespace detail

const char* intern(const std::string& name) {
  static auto* const mutex = new std::mutex;
  static auto* const names = new std::set<std::string>;  // elements of a set have stable addresses
  const std::lock_guard lock(*mutex);
  return names->insert(name).first->c_str();
}

void start_recording(std::size_t events_per_thread) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.capacity = events_per_thread;
  std::erase_if(all.rings, has_ended);
  for (const auto& ring : all.rings) ring->reset(events_per_thread);
  detail::recording = true;
  mpi::set_operation_hook(&record_operation);
}

void stop_recording() noexcept {
  mpi::set_operation_hook(nullptr);
  detail::recording = false;
}

std::vector<ThreadEvents> recorded() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<ThreadEvents> result;
  for (const auto& ring : all.rings) {
    result.push_back(ring->copy());
    result.back().number = static_cast<int>(result.size()) - 1;
  }
  return result;
}

void name_thread(const std::string& name) {
  std::shared_ptr<Ring>& mine = own_ring();
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto previous = std::find_if(all.rings.begin(), all.rings.end(), [&](const std::shared_ptr<Ring>& ring) {
    return has_ended(ring) && ring->is_called(name);
  });
  if (previous == all.rings.end() || !mine->is_empty()) return mine->set_name(name);
  const std::shared_ptr<Ring> continued = *previous;
  std::erase(all.rings, mine);
  mine = continued;
}

}  // namespace weft::trace
