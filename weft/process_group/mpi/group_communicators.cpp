#include "weft/process_group/mpi/group_communicators.h"

#include <c10/util/Exception.h>

#include <functional>

#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"
#include "weft/mpi/waiter.h"

namespace weft::process_group {
namespace {

std::atomic<bool> g_peer_lost{false};

// Collective over the members of the group only.
mpi::UniqueComm make(const std::vector<int>& ranks, const std::string& name) {
  const mpi::CommView world = mpi::CommView::world();
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  mpi::check(MPI_Comm_group(world.handle(), &all), "MPI_Comm_group");
  const int rc = MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members);
  MPI_Group_free(&all);
  mpi::check(rc, "MPI_Group_incl");
  const auto tag = static_cast<int>(std::hash<std::string>()(name) % static_cast<std::size_t>(world.tag_upper_bound()));
  MPI_Comm made = MPI_COMM_NULL;
  const int created = MPI_Comm_create_group(world.handle(), members, tag, &made);
  MPI_Group_free(&members);
  mpi::check(created, "MPI_Comm_create_group");
  return mpi::UniqueComm::adopt(made, name);
}

}  // namespace

GroupCommunicators::GroupCommunicators(const std::vector<int>& ranks, const std::string& name) : name_(name) {
  const mpi::OperationScope operation("creating a process group", nullptr);
  const mpi::BlockingScope blocking;
  collectives_ = make(ranks, "weft.process_group." + name);
  messages_ = collectives_.dup("weft.process_group." + name + ".messages");
  peers_ = mpi::Peers(collectives_);
  node_ = node::Group::of(collectives_);
  tags_ = mpi::TagSequence(collectives_.tag_upper_bound());
}

void GroupCommunicators::require_usable() const {
  const std::lock_guard lock(state_);
  TORCH_CHECK_WITH(DistBackendError, reason_.empty(), "weft: process group '", name_, "' is not usable: ", reason_);
  TORCH_CHECK_WITH(DistBackendError, mpi::Environment::alive(), "weft: MPI is not initialized or already finalized");
}

void GroupCommunicators::invalidate(const std::string& why, bool peer_lost) noexcept {
  const std::lock_guard lock(state_);
  failed_ = true;
  if (peer_lost) g_peer_lost = true;
  if (reason_.empty()) reason_ = why;
}

void GroupCommunicators::close() noexcept {
  const std::lock_guard lock(state_);
  if (reason_.empty()) reason_ = "it was shut down";
  // After a failure, messages may still be in flight, and MPI_Comm_free could wait for them.
  if (failed_) {
    collectives_.leak();
    messages_.leak();
  }
}

bool GroupCommunicators::any_peer_lost() noexcept { return g_peer_lost; }

}  // namespace weft::process_group
