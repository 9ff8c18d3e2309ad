// The torch class MPI_Comm_Wrapper, mpi4torch's communicator.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <string>

#include "weft/mpi/communicator.h"

namespace mpi4torch {

class MpiCommWrapper : public torch::CustomClassHolder {
 public:
  // A null pointer represents MPI_COMM_NULL, the result of a split on ranks that are not members.
  explicit MpiCommWrapper(std::shared_ptr<weft::Communicator> communicator) : communicator_(std::move(communicator)) {}

  // Throws for MPI_COMM_NULL.
  [[nodiscard]] const std::shared_ptr<weft::Communicator>& communicator() const;
  [[nodiscard]] std::int64_t rank() const noexcept { return communicator_ ? communicator_->rank() : -1; }
  [[nodiscard]] std::int64_t size() const noexcept { return communicator_ ? communicator_->size() : 0; }

  // Collective.
  [[nodiscard]] c10::intrusive_ptr<MpiCommWrapper> split(std::int64_t color, std::int64_t key) const;
  [[nodiscard]] c10::intrusive_ptr<MpiCommWrapper> dup() const;

  // COMM_WORLD can be unpickled in every process, other communicators only in the process that created them.
  [[nodiscard]] std::string pickled() const;
  [[nodiscard]] static c10::intrusive_ptr<MpiCommWrapper> unpickled(const std::string& state);

 private:
  std::shared_ptr<weft::Communicator> communicator_;
};

using CommPtr = c10::intrusive_ptr<MpiCommWrapper>;

}  // namespace mpi4torch
