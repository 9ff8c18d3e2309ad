// Caches a rank's part of a set in a file for later runs, and rebuilds the cache when its source changes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "weft/data/image_source.h"
#include "weft/data/part.h"

namespace weft::data {

struct CacheOptions {
  // Empty: no cache. {rank} and {size} are replaced by the rank and the number of ranks; "-train" or "-test" is
  // inserted before the extension.
  std::string path;
  // Receives one message if a cache is rebuilt or cannot be written; the default prints to stderr.
  std::function<void(const std::string&)> say{};
};

// Expands the pattern of CacheOptions::path. Throws std::invalid_argument for unknown placeholders, or if several ranks
// would share one file.
[[nodiscard]] std::filesystem::path cache_path(const std::string& pattern, const std::string& portion,
                                               std::int64_t rank, std::int64_t size);

// Loads the part from its cache if the cache is intact, has the current format, and matches the origin, the options and
// the content of the source files. Otherwise reads the origin and rewrites the cache. A cache that cannot be written is
// reported but is not an error. Throws like read_part().
[[nodiscard]] ImagePart load_part(const ImageOrigin& origin, const PartOptions& options,
                                  const CacheOptions& cache = {});

}  // namespace weft::data
