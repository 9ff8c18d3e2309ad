// Flag in the group's store with which a rank notifies the others that it has aborted.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>

namespace weft::process_group {

class AbortFlag {
 public:
  // `key` must be unique to the group. The flag uses its own connection to the store, because other threads may block
  // in the given one.
  AbortFlag(const c10::intrusive_ptr<c10d::Store>& store, std::string key, int rank);

  // Sets the flag. Only the first rank's reason is kept, because it is probably the cause of the others.
  void set(const std::string& reason) noexcept;
  // Returns text such as "rank 2 aborted: ..." if another rank has set the flag; empty if none has, or if the store is
  // unreachable.
  [[nodiscard]] std::string reason() noexcept;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::string key_;
  std::string name_;  // "rank 2"
};

}  // namespace weft::process_group
