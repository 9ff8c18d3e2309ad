// Detects whether a file has changed since a fingerprint of it was taken, without reading it if its times are
// unchanged.
#pragma once

#include <cstdint>
#include <filesystem>

namespace weft::files {

struct Fingerprint {
  std::int64_t size = 0;
  std::int64_t modified_ns = 0;
  std::int64_t changed_ns = 0;  // ctime; unlike mtime, cp -p and touch cannot set it
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t settled = 0;    // 0: the file was so recent that a later change could have the same times
  std::uint64_t checksum = 0;  // checksum of the whole content

  // Reads the whole file. Throws FileError if it cannot be read.
  [[nodiscard]] static Fingerprint of(const std::filesystem::path& path);
};

enum class Change : std::int8_t { kNone, kTouched, kContent, kGone };

// Returns how `path` differs from the fingerprint `then`:
//   kNone: same times and inode; the file is not read.
//   kTouched: moved or touched, but with the same bytes.
//   kContent: different bytes.
//   kGone: no such file.
[[nodiscard]] Change change_since(const Fingerprint& then, const std::filesystem::path& path);

}  // namespace weft::files
