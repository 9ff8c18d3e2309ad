#include "weft/multigrid/error.h"

namespace weft::multigrid {
namespace {

std::string describe(const Fault& fault) {
  return "multigrid: " + fault.activity + " failed on rank " + std::to_string(fault.rank) + ", level " +
         std::to_string(fault.level) + ", " + (fault.is_step() ? "step " : "point ") + std::to_string(fault.index) +
         ": " + fault.text;
}

}  // namespace

SolveError::SolveError(const Fault& fault, const std::string& also)
    : mpi::SharedFailure(describe(fault) + also), fault_(fault) {}

}  // namespace weft::multigrid
