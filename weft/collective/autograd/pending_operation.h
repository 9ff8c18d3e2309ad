// A non-blocking operation in progress, and wait(), which completes it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <source_location>
#include <utility>

#include "weft/mpi/communicator.h"

namespace weft::collective {

// The torch class "PendingOperation". If it is destroyed before it completes, its buffers live until MPI releases them.
class PendingOperation : public torch::CustomClassHolder {
 public:
  explicit PendingOperation(const char* name, std::shared_ptr<Communicator> communicator)
      : name_(name), communicator_(std::move(communicator)) {}
  ~PendingOperation() override = default;

  // Makes progress. Returns true if wait() would not block.
  [[nodiscard]] virtual bool ready() = 0;

  [[nodiscard]] const char* name() const noexcept { return name_; }
  [[nodiscard]] const std::shared_ptr<Communicator>& communicator() const noexcept { return communicator_; }
  // The sender and tag of a received tensor; -1 before it arrives and for operations other than irecv.
  [[nodiscard]] virtual std::int64_t source() const { return -1; }
  [[nodiscard]] virtual std::int64_t tag() const { return -1; }

 protected:
  friend at::Tensor wait(const c10::intrusive_ptr<PendingOperation>& pending, std::source_location where);
  [[nodiscard]] virtual at::Tensor finish() = 0;

 private:
  const char* name_;
  std::shared_ptr<Communicator> communicator_;
  bool finished_ = false;
};

// Blocks until the operation is complete.
// Returns its result; an undefined tensor for isend.
// Throws c10::Error if called twice, and mpi::PeerLost or mpi::TimeoutError if a rank fails or is missing.
at::Tensor wait(const c10::intrusive_ptr<PendingOperation>& pending,
                std::source_location where = std::source_location::current());

// Registers the torch class once. Operations whose schema contains it call this before they define the schema, because
// the initialization order of translation units is unspecified.
void register_pending_operation_class();

}  // namespace weft::collective
