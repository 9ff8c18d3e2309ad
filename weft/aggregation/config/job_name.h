// Syntax of job names in configuration files, keys files and gRPC metadata.
#pragma once

#include <cstddef>
#include <string_view>

namespace weft::aggregation {

inline constexpr const char* kJobNameRule = "up to 64 letters, digits, dots, dashes and underscores";

[[nodiscard]] inline bool is_job_name(std::string_view name) {
  constexpr std::size_t kLongest = 64;
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= kLongest && name.find_first_not_of(kLetters) == std::string_view::npos;
}

}  // namespace weft::aggregation
