// What a file was when something was made from it: whether it still is that, cheaply if nobody touched it.
#pragma once

#include <cstdint>
#include <filesystem>

namespace weft::files {

struct Fingerprint {
  std::int64_t size = 0;
  std::int64_t modified_ns = 0;
  std::int64_t changed_ns = 0;  // ctime, which cp -p and touch cannot set back
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t settled = 0;    // 0: so young when it was taken that a later change may carry the same times
  std::uint64_t checksum = 0;  // of all bytes

  // Reads the whole file. Throws FileError.
  [[nodiscard]] static Fingerprint of(const std::filesystem::path& path);
};

enum class Change : std::int8_t { kNone, kTouched, kContent, kGone };

// kNone: nobody touched the file, which is not read again. kTouched: moved or touched, but its bytes are the same.
[[nodiscard]] Change change_since(const Fingerprint& then, const std::filesystem::path& path);

}  // namespace weft::files
