// SlotOperation: the steps that all operations of a Group share. See weft/node/group.h for the protocol.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "weft/mpi/operation.h"
#include "weft/node/group.h"

namespace weft::node {

class SlotOperation : public mpi::Operation {
 public:
  // If the calls of the ranks do not match, throws mpi::LengthMismatch after the operation has finished.
  [[nodiscard]] bool advance() final;
  // If the operation is not finished, other ranks may still access its memory, which is then leaked.
  ~SlotOperation() override;

 protected:
  // `fingerprint`: hash of the properties that must be equal on all ranks. `keep` owns the memory of the operation.
  SlotOperation(std::shared_ptr<Group> group, std::uint64_t fingerprint, std::shared_ptr<void> keep);

  // Writes this rank's data and exposures to its post.
  virtual void post() = 0;
  // Copies or reduces as far as possible without waiting. Returns true when nothing is left to do.
  [[nodiscard]] virtual bool work() = 0;
  // Whether `rank` accesses this rank's own memory, outside of the segment.
  [[nodiscard]] virtual bool exposed_to(int rank) const = 0;

  [[nodiscard]] Group& group() const noexcept { return *group_; }
  [[nodiscard]] Post& post_of(int rank) const noexcept { return group_->post(number_, rank); }
  [[nodiscard]] std::byte* area_of(int rank) const noexcept { return group_->area(number_, rank); }
  [[nodiscard]] Exposure* exposures_of(int rank) const noexcept { return group_->exposures(number_, rank); }
  // Whether `rank` has filled its post. Records a mismatch if its fingerprint differs.
  [[nodiscard]] bool has_posted(int rank);
  [[nodiscard]] bool all_posted();
  [[nodiscard]] bool has_reduced(int rank) const noexcept {
    return post_of(rank).reduced.load(std::memory_order_acquire) == number_;
  }
  void set_reduced() const noexcept { post_of(group_->rank()).reduced.store(number_, std::memory_order_release); }
  // After a mismatch, the operation must not transfer data, but it has to finish.
  void record_mismatch(const std::string& text);
  [[nodiscard]] bool mismatched() const noexcept { return !mismatch_.empty(); }

 private:
  enum class Step : std::int8_t { kReserve, kWork, kRelease, kDone };
  [[nodiscard]] bool run_steps();
  [[nodiscard]] bool released() const noexcept;
  void idle();

  std::shared_ptr<Group> group_;
  std::uint64_t number_;
  std::uint64_t fingerprint_;
  std::shared_ptr<void> keep_;
  std::string mismatch_;
  std::chrono::steady_clock::time_point checked_{};  // last check for terminated peers
  unsigned idle_calls_ = 0;
  Step step_ = Step::kReserve;
};

}  // namespace weft::node
