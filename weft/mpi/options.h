// Settings of the communication layer; the one place that reads weft's environment variables.
#pragma once

#include <chrono>
#include <cstdint>

namespace weft::mpi {

struct Options {
  // How long a blocking wait may last before it throws TimeoutError (WEFT_TIMEOUT, seconds).
  std::chrono::milliseconds timeout{300'000};
  // How long a wait lasts before it says on stderr who waits in what (WEFT_WARN, seconds).
  std::chrono::milliseconds warn_after{30'000};
  // Record call sites and check backward operations too (WEFT_DEBUG=1).
  bool debug = false;
  // Before a collective communicates, check that all ranks called the same one (WEFT_CHECK=0 turns it off:
  // then mismatched calls are undefined, as in MPI, and ranks without gradients must not differ).
  bool check = true;
  // Give device pointers to MPI where the library can take them (WEFT_CUDA_AWARE=0 turns it off).
  bool cuda_aware = true;
  // Largest count that one MPI call is given; larger transfers are made in chunks of it (WEFT_MAX_COUNT).
  std::int64_t max_count = std::int64_t{1} << 30;

  [[nodiscard]] static Options from_environment();
};

// The options of this process; the first call reads the environment and throws std::invalid_argument for a value that
// makes no sense. set_options is for start-up and tests, and throws likewise.
[[nodiscard]] const Options& options();
void set_options(const Options& options);

}  // namespace weft::mpi
