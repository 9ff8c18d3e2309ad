// A deadline for tests that poll: a failure reports the missing event instead of hanging.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

namespace weft {

// Calls `condition` until it returns true. Throws std::runtime_error if that takes longer than `limit`. Exceptions of
// `condition` pass through.
template <class Condition>
void eventually(Condition&& condition, const std::string& event,
                std::chrono::seconds limit = std::chrono::seconds(60)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error("test: " + event + " did not happen within " + std::to_string(limit.count()) + " s");
    }
    std::this_thread::yield();
  }
}

}  // namespace weft
