// The communicator as torch sees it: a custom class that C++, Python and TorchScript can hold and hand around.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/collective/pending.h"
#include "weft/mpi/team.h"

namespace weft::collective {

class TeamHolder : public torch::CustomClassHolder {
 public:
  explicit TeamHolder(std::shared_ptr<mpi::Team> team) : team_(std::move(team)) {}

  [[nodiscard]] const std::shared_ptr<mpi::Team>& team() const noexcept { return team_; }

 private:
  std::shared_ptr<mpi::Team> team_;
};

using TeamPtr = c10::intrusive_ptr<TeamHolder>;

// Collective; null where this rank is not part of the result.
[[nodiscard]] TeamPtr world_team();
[[nodiscard]] TeamPtr team_from_fortran(std::int64_t handle);

}  // namespace weft::collective
