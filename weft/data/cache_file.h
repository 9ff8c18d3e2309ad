// The format of a cached part: what it was made from, then its tensors, then a checksum over all of it.
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

// What a part was made from.
struct CacheSource {
  std::string description;  // of origin and options
  std::vector<CachedFile> files;
};

// A cache that is not to be used, and why.
class StaleCache : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Written beside its place and moved there. Throws files::FileError.
void write_cache(const std::filesystem::path& path, const CacheSource& source, const ImagePart& part);

// Throws StaleCache for a file that is no cache, is damaged, has another format, or whose source `accept` refuses by
// throwing StaleCache itself; that is asked before the tensors are read.
[[nodiscard]] ImagePart read_cache(const std::filesystem::path& path,
                                   const std::function<void(const CacheSource&)>& accept);

}  // namespace weft::data
