// Settings of the communication layer, read from the environment.
#pragma once

#include <chrono>
#include <cstdint>

namespace weft::mpi {

inline constexpr double kLongestWait = 1e9;  // seconds, about 30 years: in effect no limit

struct Options {
  // A blocking wait throws TimeoutError after this time (WEFT_TIMEOUT, seconds).
  std::chrono::milliseconds timeout{300'000};
  // A wait prints its rank and operation to stderr after this time (WEFT_WARN, seconds).
  std::chrono::milliseconds warn_after{30'000};
  // Record the call site of every operation (WEFT_DEBUG=1).
  bool debug = false;
  // Before a collective communicates, check that all ranks called the same one. With WEFT_CHECK=0 mismatched calls are
  // undefined behaviour, as in MPI, and gradients must be enabled on all ranks or on none.
  bool check = true;
  // Pass device pointers to MPI if the library supports them (WEFT_CUDA_AWARE=0 disables it).
  bool cuda_aware = true;
  // The largest count of one MPI call; larger transfers use several calls (WEFT_MAX_COUNT).
  std::int64_t max_count = std::int64_t{1} << 30;

  [[nodiscard]] static Options from_environment();
};

// The options of this process. The first call reads the environment. Both functions throw std::invalid_argument for
// invalid values. set_options() is for start-up and tests.
[[nodiscard]] const Options& options();
void set_options(const Options& options);

}  // namespace weft::mpi
