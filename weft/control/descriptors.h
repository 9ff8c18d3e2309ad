// How many descriptors (connections, sockets, files) this process may have open.
#pragma once

#include <cstdint>

namespace weft::control {

// Raises the soft limit to `wanted`, or as far as the hard limit lets it; never lowers it. What it is then.
std::uint64_t allow_descriptors(std::uint64_t wanted);

}  // namespace weft::control
