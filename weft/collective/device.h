// Device memory that MPI can access directly; the memory of other devices is staged through the host.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace weft::collective {

// Returns true if MPI can read and write the memory of this device. Synchronizes a device other than the CPU, because
// MPI ignores streams. Implemented in device_cuda.cpp or no_cuda.cpp.
[[nodiscard]] bool mpi_reads(const c10::Device& device);

// Returns "yes", or "no: " and the reason, for weft.doctor().
[[nodiscard]] std::string cuda_aware_report();

}  // namespace weft::collective
