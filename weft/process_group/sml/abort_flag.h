// Flag in the group's store with which a rank notifies the others that it has aborted.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <functional>
#include <memory>
#include <string>

namespace weft::process_group {

// Calls return after at most two seconds. If the store's host is stopped or unreachable, a call of the store itself
// would block without limit.
class AbortFlag {
 public:
  // `key` must be unique to the group. The flag uses its own connection to the store, because other threads may block
  // in the given one.
  AbortFlag(const c10::intrusive_ptr<c10d::Store>& store, std::string key, int rank);

  // Sets the flag. Only the first rank's reason is kept, because it is probably the cause of the others.
  void set(const std::string& reason) noexcept;
  // Returns text such as "rank 2 aborted: ..." if another rank has set the flag; empty if none has, or if the store
  // does not answer.
  [[nodiscard]] std::string reason() noexcept;

 private:
  struct Access;
  // Runs `call` in a thread, which is abandoned if it takes too long. Calls never overlap; while an abandoned one
  // blocks, later ones give up after the same time. Returns whether the call finished.
  bool run(std::function<void(Access&)> call) noexcept;

  std::shared_ptr<Access> access_;
  std::string name_;  // "rank 2"
};

}  // namespace weft::process_group
