// What a rank that gives up tells the others of its group, through the group's store.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>

namespace weft::process_group {

class Notice {
 public:
  // `key` is this group's alone. The store is asked over a connection of its own: others may wait in the given one.
  Notice(const c10::intrusive_ptr<c10d::Store>& store, std::string key, int rank);

  // Of several ranks the first counts; it is most likely the cause of the others.
  void tell(const std::string& reason) noexcept;
  // "rank 2 gave up: ..." of another rank; empty if none did, or the store has gone.
  [[nodiscard]] std::string heard() noexcept;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::string key_;
  std::string name_;  // "rank 2"
};

}  // namespace weft::process_group
