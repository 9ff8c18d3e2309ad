// The torch class "Communicator", which wraps weft::Communicator for Python and TorchScript.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "weft/mpi/communicator.h"

namespace weft::collective {

class TorchCommunicator : public torch::CustomClassHolder {
 public:
  explicit TorchCommunicator(std::shared_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {}

  [[nodiscard]] const std::shared_ptr<Communicator>& communicator() const noexcept { return communicator_; }

 private:
  std::shared_ptr<Communicator> communicator_;
};

using TorchCommunicatorPtr = c10::intrusive_ptr<TorchCommunicator>;

// Returns the communicator of all ranks of the job. Collective at the first call.
[[nodiscard]] TorchCommunicatorPtr world_communicator();
// Returns a duplicate of the MPI communicator with this Fortran handle; null if this rank is not a member. Collective.
[[nodiscard]] TorchCommunicatorPtr communicator_from_fortran(std::int64_t handle);

}  // namespace weft::collective
