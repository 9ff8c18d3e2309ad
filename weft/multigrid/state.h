// A value of the problem's own type at one point in time: immutable, shared, and cheap to copy.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

namespace weft::multigrid {

// The solver stores, injects and copies states without knowing what they are; copying one counts a reference.
// An empty State stands for "none": a right-hand side of zero, or a value that could not be computed.
class State {
 public:
  State() = default;
  explicit State(std::shared_ptr<const void> value) : value_(std::move(value)) {}

  template <class T>
  [[nodiscard]] static State of(T value) {
    return State(std::make_shared<T>(std::move(value)));
  }

  // The caller names the type that the state was made of.
  template <class T>
  [[nodiscard]] const T& as() const noexcept {
    return *static_cast<const T*>(value_.get());
  }
  // The value for overwriting, if nobody else holds this state; null otherwise. Only for states made by `of`. What the
  // value itself shares with others, as a tensor may share its memory, is for the caller to know.
  template <class T>
  [[nodiscard]] T* exclusive() noexcept {
    return value_.use_count() == 1 ? static_cast<T*>(const_cast<void*>(value_.get())) : nullptr;
  }

  [[nodiscard]] explicit operator bool() const noexcept { return value_ != nullptr; }
  [[nodiscard]] const std::shared_ptr<const void>& shared() const noexcept { return value_; }
  void reset() noexcept { *this = State(); }

  // The task that made this state, where a Recorder is at work; -1 otherwise.
  [[nodiscard]] std::int64_t producer() const noexcept { return producer_; }
  void set_producer(std::int64_t task) noexcept { producer_ = task; }

 private:
  std::shared_ptr<const void> value_;
  std::int64_t producer_ = -1;
};

}  // namespace weft::multigrid
