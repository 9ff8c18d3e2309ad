#include "weft/node/slot_operation.h"

#include <utility>

#include "weft/mpi/message/exchange.h"
#include "weft/mpi/yield.h"

namespace weft::node {

SlotOperation::SlotOperation(std::shared_ptr<Group> group, std::uint64_t fingerprint, std::shared_ptr<void> keep)
    : group_(std::move(group)), number_(group_->next_operation()), fingerprint_(fingerprint), keep_(std::move(keep)) {}

SlotOperation::~SlotOperation() {
  if (step_ == Step::kDone) return;
  group_->mark_failed();
  static_cast<void>(new std::shared_ptr<void>(std::move(keep_)));
}

bool SlotOperation::advance() {
  if (!run_steps()) {
    idle();
    return false;
  }
  if (mismatched()) throw mpi::LengthMismatch(mismatch_);
  return true;
}

bool SlotOperation::run_steps() {
  switch (step_) {
    case Step::kReserve:
      if (!group_->slot_free(number_)) return false;
      post();
      group_->set_posted(number_, fingerprint_);
      step_ = Step::kWork;
      [[fallthrough]];
    case Step::kWork:
      if (!work()) return false;
      group_->set_finished(number_);
      step_ = Step::kRelease;
      [[fallthrough]];
    case Step::kRelease:
      if (!released()) return false;
      step_ = Step::kDone;
      [[fallthrough]];
    case Step::kDone:
      return true;
  }
  return true;
}

bool SlotOperation::released() const noexcept {
  for (int rank = 0; rank < group_->size(); ++rank) {
    if (exposed_to(rank) && post_of(rank).finished.load(std::memory_order_acquire) < number_) return false;
  }
  return true;
}

// Ranks that share cores yield at once: the rank that this one waits for may need the core.
void SlotOperation::idle() {
  constexpr unsigned kCheckInterval = 64;
  constexpr auto kInspectEvery = std::chrono::milliseconds(20);
  if (group_->crowded()) mpi::yield_core();
  if (++idle_calls_ % kCheckInterval != 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (checked_ == std::chrono::steady_clock::time_point{}) checked_ = now;
  if (now - checked_ < kInspectEvery) return;
  checked_ = now;
  group_->require_alive();
}

bool SlotOperation::has_posted(int rank) {
  if (!group_->has_posted(number_, rank)) return false;
  if (post_of(rank).fingerprint != fingerprint_ && !mismatched()) {
    record_mismatch("rank " + std::to_string(rank) +
                    " called another collective, or with another size, type or reduction, than rank " +
                    std::to_string(group_->rank()));
  }
  return true;
}

bool SlotOperation::all_posted() {
  for (int rank = 0; rank < group_->size(); ++rank) {
    if (rank != group_->rank() && !has_posted(rank)) return false;
  }
  return true;
}

void SlotOperation::record_mismatch(const std::string& text) {
  if (mismatch_.empty()) mismatch_ = text;
}

}  // namespace weft::node
