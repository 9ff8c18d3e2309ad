// Produces items ahead of their consumer on a separate thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace weft::data {

template <typename Item>
class Prefetcher {
 public:
  using Produce = std::function<std::optional<Item>()>;

  // Calls `produce` until it returns nullopt or throws, at most `depth` items ahead of next(). With depth 0 there is no
  // thread, and next() calls `produce` itself.
  Prefetcher(Produce produce, std::size_t depth) : produce_(std::move(produce)), depth_(depth) {
    if (depth_ > 0) thread_ = std::thread([this] { run(); });
  }
  // Waits for the current call of `produce` and starts no further one.
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Returns the next item, or nullopt after the last one. After an exception in `produce`, returns the remaining items
  // and then rethrows the exception on every call.
  std::optional<Item> next() {
    if (depth_ == 0) return make_directly();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !items_.empty() || ended_; });
    if (items_.empty()) return end();
    std::optional<Item> item(std::move(items_.front()));
    items_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return item;
  }

 private:
  std::optional<Item> end() const {
    if (failure_) std::rethrow_exception(failure_);
    return std::nullopt;
  }

  std::optional<Item> make_directly() {
    if (ended_) return end();
    std::optional<Item> item = make();
    ended_ = !item.has_value();
    return item ? std::move(item) : end();
  }

  std::optional<Item> make() noexcept {
    try {
      return produce_();
    } catch (...) {
      failure_ = std::current_exception();
      return std::nullopt;
    }
  }

  void run() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stop_ || items_.size() < depth_; });
        if (stop_) return;
      }
      std::optional<Item> item = make();
      const std::lock_guard lock(mutex_);
      ended_ = !item.has_value();
      if (item) items_.push_back(*std::move(item));
      changed_.notify_all();
      if (ended_) return;
    }
  }

  Produce produce_;
  std::size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  std::exception_ptr failure_;  // written before ended_ and read after it
  bool ended_ = false;
  bool stop_ = false;
  std::thread thread_;  // last member, since the thread uses all of the above
};

}  // namespace weft::data
