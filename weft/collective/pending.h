// A non-blocking operation under way, and wait(), which ends it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <source_location>

#include "weft/mpi/team.h"

namespace weft::collective {

// Completes once; a Pending that nobody waits for keeps its buffers until MPI is done with them.
class Pending : public torch::CustomClassHolder {
 public:
  explicit Pending(const char* name, std::shared_ptr<mpi::Team> team) : name_(name), team_(std::move(team)) {}
  ~Pending() override = default;

  // True once wait() would not block; makes progress.
  [[nodiscard]] virtual bool ready() = 0;

  [[nodiscard]] const char* name() const noexcept { return name_; }
  [[nodiscard]] const std::shared_ptr<mpi::Team>& team() const noexcept { return team_; }
  // Where a received tensor came from; -1 for operations that receive from nobody in particular.
  [[nodiscard]] virtual std::int64_t source() const { return -1; }
  [[nodiscard]] virtual std::int64_t tag() const { return -1; }

 protected:
  friend at::Tensor wait(const c10::intrusive_ptr<Pending>& pending, std::source_location where);
  [[nodiscard]] virtual at::Tensor finish() = 0;

 private:
  const char* name_;
  std::shared_ptr<mpi::Team> team_;
  bool finished_ = false;
};

// Blocks until the operation is done and returns its result; an undefined tensor for isend. Throws (TORCH_CHECK) when
// called twice.
at::Tensor wait(const c10::intrusive_ptr<Pending>& pending,
                std::source_location where = std::source_location::current());

}  // namespace weft::collective
