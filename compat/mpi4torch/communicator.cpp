#include "compat/mpi4torch/communicator.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <sstream>

#include "weft/mpi/comm.h"

namespace mpi4torch {
namespace {

using weft::Communicator;

CommPtr wrap(weft::mpi::UniqueComm comm) {
  return c10::make_intrusive<MpiCommWrapper>(Communicator::adopt(std::move(comm)));
}

const char* kWorld = "world";
const char* kNull = "null";

}  // namespace

const std::shared_ptr<Communicator>& MpiCommWrapper::communicator() const {
  TORCH_CHECK(communicator_ != nullptr, "mpi4torch: this rank is not a member of the communicator");
  return communicator_;
}

CommPtr MpiCommWrapper::split(std::int64_t color, std::int64_t key) const {
  communicator()->enter();
  return wrap(communicator()->origin().split(static_cast<int>(color), static_cast<int>(key)));
}

CommPtr MpiCommWrapper::dup() const {
  communicator()->enter();
  return wrap(communicator()->origin().dup());
}

std::string MpiCommWrapper::pickled() const {
  if (!communicator_) return kNull;
  if (communicator_ == Communicator::world()) return kWorld;
  return std::to_string(getpid()) + " " + std::to_string(communicator_->id());
}

CommPtr MpiCommWrapper::unpickled(const std::string& state) {
  if (state == kNull) return c10::make_intrusive<MpiCommWrapper>(nullptr);
  if (state == kWorld) return c10::make_intrusive<MpiCommWrapper>(Communicator::world());
  std::istringstream text(state);
  std::int64_t process = 0;
  std::int64_t id = 0;
  text >> process >> id;
  TORCH_CHECK(process == getpid(),
              "mpi4torch: this communicator was pickled in another process, which works for COMM_WORLD only; create ",
              "other communicators with Split, Dup or comm_from_mpi4py");
  return c10::make_intrusive<MpiCommWrapper>(Communicator::find(id));
}

}  // namespace mpi4torch
