// File format of a cached part: a description of its source, its tensors, and a checksum of everything before it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "weft/data/part.h"
#include "weft/files/fingerprint.h"

namespace weft::data {

struct CachedFile {
  std::string path;
  files::Fingerprint fingerprint;
};

// The source that a part was built from.
struct CacheSource {
  std::string description;  // origin and options
  std::vector<CachedFile> files;
};

// Thrown if a cache cannot be used; the text is the reason.
class StaleCache : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Replaces the file atomically. Throws files::FileError.
void write_cache(const std::filesystem::path& path, const CacheSource& source, const ImagePart& part);

// Reads a cache. Calls `accept` with its source before reading the tensors; `accept` throws StaleCache to reject it.
// Throws StaleCache if the file is not a cache, is damaged, or has another format version.
[[nodiscard]] ImagePart read_cache(const std::filesystem::path& path,
                                   const std::function<void(const CacheSource&)>& accept);

}  // namespace weft::data
