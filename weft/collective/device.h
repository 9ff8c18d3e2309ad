// Which devices' memory MPI can be given directly; everything else is staged through host memory.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace weft::collective {

// Whether MPI may read and write the memory of this device. For a device other than the CPU this also waits for
// the work under way on it, because MPI does not know about streams. device_cuda.cpp or no_cuda.cpp.
[[nodiscard]] bool mpi_reads(const c10::Device& device);

// "yes", or why not: for weft.doctor().
[[nodiscard]] std::string cuda_aware_report();

}  // namespace weft::collective
