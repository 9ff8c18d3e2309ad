#include "compat/mpi4torch/communicator.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <sstream>

#include "weft/mpi/communicator.h"

namespace mpi4torch {
namespace {

using weft::mpi::Team;

CommPtr hold(weft::mpi::Communicator comm) { return c10::make_intrusive<MpiCommWrapper>(Team::adopt(std::move(comm))); }

const char* kWorld = "world";
const char* kNull = "null";

}  // namespace

const std::shared_ptr<Team>& MpiCommWrapper::team() const {
  TORCH_CHECK(team_ != nullptr, "mpi4torch: this rank is not part of the communicator");
  return team_;
}

CommPtr MpiCommWrapper::split(std::int64_t color, std::int64_t key) const {
  team()->enter();
  return hold(team()->origin().split(static_cast<int>(color), static_cast<int>(key)));
}

CommPtr MpiCommWrapper::dup() const {
  team()->enter();
  return hold(team()->origin().dup());
}

std::string MpiCommWrapper::pickled() const {
  if (!team_) return kNull;
  if (team_ == Team::world()) return kWorld;
  return std::to_string(getpid()) + " " + std::to_string(team_->id());
}

CommPtr MpiCommWrapper::unpickled(const std::string& state) {
  if (state == kNull) return c10::make_intrusive<MpiCommWrapper>(nullptr);
  if (state == kWorld) return c10::make_intrusive<MpiCommWrapper>(Team::world());
  std::istringstream text(state);
  std::int64_t process = 0;
  std::int64_t id = 0;
  text >> process >> id;
  TORCH_CHECK(process == getpid(),
              "mpi4torch: this communicator was pickled in another process. Only COMM_WORLD means ",
              "the same everywhere; make the others anew with Split, Dup or comm_from_mpi4py.");
  return c10::make_intrusive<MpiCommWrapper>(Team::find(id));
}

}  // namespace mpi4torch
