// State: a value of a user-defined type at one point in time. Immutable, shared and cheap to copy.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

namespace weft::multigrid {

// The solver stores and copies states without knowing their type; a copy increments a reference count. An empty State
// is a right-hand side of zero or a value that could not be computed.
class State {
 public:
  State() = default;
  explicit State(std::shared_ptr<const void> value) : value_(std::move(value)) {}

  template <class T>
  [[nodiscard]] static State of(T value) {
    return State(std::make_shared<T>(std::move(value)));
  }

  // T must be the type of the value that the state holds.
  template <class T>
  [[nodiscard]] const T& as() const noexcept {
    return *static_cast<const T*>(value_.get());
  }
  // Returns the value for overwriting if this is the only reference to the state; otherwise null. Requires a state from
  // `of`.
  // The caller must know whether the value itself shares memory with others, as a tensor may.
  template <class T>
  [[nodiscard]] T* exclusive() noexcept {
    return value_.use_count() == 1 ? static_cast<T*>(const_cast<void*>(value_.get())) : nullptr;
  }

  [[nodiscard]] explicit operator bool() const noexcept { return value_ != nullptr; }
  [[nodiscard]] const std::shared_ptr<const void>& shared() const noexcept { return value_; }
  void reset() noexcept { *this = State(); }

  // The task that made this state, if a Recorder is active; otherwise -1.
  [[nodiscard]] std::int64_t producer() const noexcept { return producer_; }
  void set_producer(std::int64_t task) noexcept { producer_ = task; }

 private:
  std::shared_ptr<const void> value_;
  std::int64_t producer_ = -1;
};

}  // namespace weft::multigrid
