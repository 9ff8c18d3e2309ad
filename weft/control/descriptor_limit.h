// Limit of open file descriptors of this process.
#pragma once

#include <cstdint>

namespace weft::control {

// Raises the soft limit to `wanted`, or to the hard limit if that is lower. Never lowers it. Returns the new limit.
std::uint64_t raise_descriptor_limit(std::uint64_t wanted);

}  // namespace weft::control
