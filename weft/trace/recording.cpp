#include "weft/trace/recording.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>

namespace weft::trace {
namespace {

std::int64_t nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

// A ring of one thread's events. Its own lock: nobody but a reader ever contends for it.
class Ring {
 public:
  explicit Ring(int number) { kept_.number = number; }

  void restart(std::size_t capacity) {
    const std::lock_guard lock(mutex_);
    capacity_ = std::max<std::size_t>(capacity, 1);
    kept_.events.clear();
    kept_.forgotten = 0;
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
    ++kept_.forgotten;
  }
  void set_name(const std::string& name) {
    const std::lock_guard lock(mutex_);
    kept_.name = name;
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
  std::size_t next_ = 0;  // the oldest, once the ring is full
};

// Rings outlive their threads: what a thread did is asked for at the end of a run.
struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<Ring>> rings;
  std::size_t capacity = 1;
};

Registry& registry() {
  static auto* const instance = new Registry;  // never destroyed: threads may record until the process ends
  return *instance;
}

Ring& own_ring() {
  thread_local const std::shared_ptr<Ring> ring = [] {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    auto made = std::make_shared<Ring>(static_cast<int>(all.rings.size()));
    made->restart(all.capacity);
    all.rings.push_back(made);
    return made;
  }();
  return *ring;
}

}  // namespace

namespace detail {

std::atomic<bool> recording{false};

void record(const char* name, Clock::time_point begin, std::int64_t detail) {
  const auto end = Clock::now();
  if (!trace::recording()) return;  // stopped meanwhile
  own_ring().add({name, nanoseconds(begin.time_since_epoch()), nanoseconds(end - begin), detail});
}

}  // namespace detail

const char* intern(const std::string& name) {
  static auto* const mutex = new std::mutex;
  static auto* const names = new std::set<std::string>;  // a set's elements stay where they are
  const std::lock_guard lock(*mutex);
  return names->insert(name).first->c_str();
}

void start_recording(std::size_t events_per_thread) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.capacity = events_per_thread;
  // A ring that nobody else holds belongs to a thread that has ended: it would come back empty.
  std::erase_if(all.rings, [](const std::shared_ptr<Ring>& ring) { return ring.use_count() == 1; });
  for (const auto& ring : all.rings) ring->restart(events_per_thread);
  detail::recording = true;
}

void stop_recording() noexcept { detail::recording = false; }

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

void name_thread(const std::string& name) { own_ring().set_name(name); }

}  // namespace weft::trace
