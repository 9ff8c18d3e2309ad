// Built if torch has CUDA: MPI accesses device memory directly if the MPI library reports support.
#include <c10/cuda/CUDAStream.h>
#include <mpi.h>

#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include "weft/collective/device.h"
#include "weft/mpi/options.h"

namespace weft::collective {
namespace {

bool library_is_cuda_aware() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  static const bool answer = MPIX_Query_cuda_support() == 1;
  return answer;
#else
  return false;
#endif
}

}  // namespace

bool mpi_reads(const c10::Device& device) {
  if (device.is_cpu()) return true;
  if (!device.is_cuda() || !mpi::options().cuda_aware || !library_is_cuda_aware()) return false;
  c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
  return true;
}

std::string cuda_aware_report() {
  if (!mpi::options().cuda_aware) return "no: disabled by WEFT_CUDA_AWARE=0 or Options(cuda_aware=False)";
  return library_is_cuda_aware() ? "yes" : "no: the MPI library does not report CUDA support";
}

}  // namespace weft::collective
