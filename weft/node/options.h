// Settings of weft/node: the mechanisms that it may use, and the message sizes for which it uses them.
#pragma once

#include <cstdint>

namespace weft::node {

struct Options {
  // Share a memory segment between the ranks of a node (WEFT_NODE=0 disables it). Without it, all messages use MPI.
  bool segment = true;
  // Read and write the memory of other processes (WEFT_CROSS_MEMORY=0 disables it). Without it, large messages use MPI.
  bool cross_memory = true;

  // The choice of an algorithm by the bytes of a rank's message. Must be equal on all ranks. WEFT_NODE_SIZES sets these
  // numbers, separated by commas.
  // Reductions up to this size read all contributions from the segment, in one step.
  std::int64_t one_step_bytes = std::int64_t{8} << 10;
  // All-reduces up to this size use the segment in two steps: each rank reduces a part, then all collect the parts.
  // Larger messages use cross-memory attach. By default it starts here, and two steps serve systems without it.
  std::int64_t two_step_bytes = std::int64_t{8} << 10;
  // Messages between two ranks up to this size are copied through the segment.
  std::int64_t copy_bytes = std::int64_t{8} << 10;
  // Bytes that a rank reduces at a time with cross-memory attach, over all contributions; they should fit its cache.
  std::int64_t chunk_bytes = std::int64_t{512} << 10;

  // Throws std::invalid_argument for invalid values.
  [[nodiscard]] static Options from_environment();
};

// The options of this process. The first call reads the environment. set_options() is for start-up and tests; existing
// groups keep their mechanisms. Throws std::invalid_argument for sizes that are not positive.
[[nodiscard]] const Options& options();
void set_options(const Options& options);

}  // namespace weft::node
