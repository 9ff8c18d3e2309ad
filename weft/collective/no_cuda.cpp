// Built where torch has no CUDA: only host memory goes to MPI directly.
#include "weft/collective/device.h"

namespace weft::collective {

bool mpi_reads(const c10::Device& device) { return device.is_cpu(); }

std::string cuda_aware_report() { return "no: this torch has no CUDA; other devices are staged through host memory"; }

}  // namespace weft::collective
