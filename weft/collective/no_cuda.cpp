// Built if torch has no CUDA: MPI accesses host memory only.
#include "weft/collective/device.h"

namespace weft::collective {

bool mpi_reads(const c10::Device& device) { return device.is_cpu(); }

std::string cuda_aware_report() {
  return "no: torch was built without CUDA; other devices are staged through host memory";
}

}  // namespace weft::collective
