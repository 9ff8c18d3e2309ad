// The communicator as TorchScript sees it.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <string>

#include "weft/mpi/team.h"

namespace mpi4torch {

class MpiCommWrapper : public torch::CustomClassHolder {
 public:
  // An absent team stands for MPI_COMM_NULL: a rank that a split left out.
  explicit MpiCommWrapper(std::shared_ptr<weft::mpi::Team> team) : team_(std::move(team)) {}

  // Throws for MPI_COMM_NULL.
  [[nodiscard]] const std::shared_ptr<weft::mpi::Team>& team() const;
  [[nodiscard]] std::int64_t rank() const noexcept { return team_ ? team_->rank() : -1; }
  [[nodiscard]] std::int64_t size() const noexcept { return team_ ? team_->size() : 0; }

  // Collective.
  [[nodiscard]] c10::intrusive_ptr<MpiCommWrapper> split(std::int64_t color, std::int64_t key) const;
  [[nodiscard]] c10::intrusive_ptr<MpiCommWrapper> dup() const;

  // The world is the world in every process; any other communicator means something only where it was made.
  [[nodiscard]] std::string pickled() const;
  [[nodiscard]] static c10::intrusive_ptr<MpiCommWrapper> unpickled(const std::string& state);

 private:
  std::shared_ptr<weft::mpi::Team> team_;
};

using CommPtr = c10::intrusive_ptr<MpiCommWrapper>;

}  // namespace mpi4torch
