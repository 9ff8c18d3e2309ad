// A rank's part of a set, kept in a file for the next run; made again where it no longer is what it was made from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "weft/data/image_source.h"
#include "weft/data/part.h"

namespace weft::data {

struct CacheOptions {
  // Empty: no cache. {rank} and {size} stand for the rank and the number of ranks; "-train" or "-test" is put before
  // the extension.
  std::string path;
  // What was found wrong with a cache, once per call; without it, stderr.
  std::function<void(const std::string&)> say{};
};

// Throws std::invalid_argument for braces around something else, and where several ranks would share one file.
[[nodiscard]] std::filesystem::path cache_path(const std::string& pattern, const std::string& portion,
                                               std::int64_t rank, std::int64_t size);

// The part from its cache if that is whole, in the present format, of this origin, these options and files with the
// same content; otherwise from the origin, and the cache is written anew. A cache that cannot be written is said and
// otherwise no failure. Throws as read_part does.
[[nodiscard]] ImagePart load_part(const ImageOrigin& origin, const PartOptions& options,
                                  const CacheOptions& cache = {});

}  // namespace weft::data
