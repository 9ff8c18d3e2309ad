#include "weft/data/cache.h"

#include <cstdio>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "weft/data/cache_file.h"
#include "weft/data/file.h"
#include "weft/files/error.h"

namespace weft::data {
namespace {

namespace fs = std::filesystem;

std::string value_of(const std::string& key, std::int64_t rank, std::int64_t size, const std::string& pattern) {
  if (key == "rank") return std::to_string(rank);
  if (key == "size") return std::to_string(size);
  throw std::invalid_argument("weft: unknown placeholder {" + key + "} in the cache path '" + pattern +
                              "'; use {rank} and {size}");
}

std::string describe(const ImageOrigin& origin, const PartOptions& options) {
  return origin.name + " " + origin.portion + ": " + options.describe();
}

// Compares file names without their folders, so that moving the files keeps the cache valid.
void check_files(const std::vector<CachedFile>& cached, const std::vector<fs::path>& wanted) {
  if (cached.size() != wanted.size()) throw StaleCache("it was built from other files");
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (fs::path(cached[i].path).filename() != wanted[i].filename()) {
      throw StaleCache("it was built from " + quoted(fs::path(cached[i].path)) + ", not from " + quoted(wanted[i]));
    }
    const files::Change change = files::change_since(cached[i].fingerprint, wanted[i]);
    if (change == files::Change::kGone) throw MissingDataError("weft: " + quoted(wanted[i]) + " does not exist");
    if (change == files::Change::kContent) throw StaleCache(quoted(wanted[i]) + " has changed");
  }
}

void say(const CacheOptions& options, const std::string& text) {
  if (options.say) return options.say(text);
  std::fprintf(stderr, "%s\n", text.c_str());
}

std::optional<ImagePart> from_cache(const fs::path& path, const ImageOrigin& origin, const PartOptions& options,
                                    const CacheOptions& cache) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  try {
    return read_cache(path, [&](const CacheSource& source) {
      const std::string wanted = describe(origin, options);
      if (source.description != wanted) {
        throw StaleCache("it contains '" + source.description + "', expected '" + wanted + "'");
      }
      check_files(source.files, origin.files);
    });
  } catch (const StaleCache& stale) {
    say(cache, "weft: rebuilding the cache " + quoted(path) + ": " + stale.what());
    return std::nullopt;
  }
}

}  // namespace

fs::path cache_path(const std::string& pattern, const std::string& portion, std::int64_t rank, std::int64_t size) {
  std::string name;
  bool names_rank = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::size_t end = pattern[i] == '{' ? pattern.find('}', i) : std::string::npos;
    if (end == std::string::npos) {
      name.push_back(pattern[i]);
      continue;
    }
    const std::string key = pattern.substr(i + 1, end - i - 1);
    name.append(value_of(key, rank, size, pattern));
    names_rank = names_rank || key == "rank";
    i = end;
  }
  if (size > 1 && !names_rank) {
    throw std::invalid_argument("weft: the cache path '" + pattern + "' must contain {rank}, since " +
                                std::to_string(size) + " ranks use it");
  }
  const fs::path path(name);
  if (portion.empty()) return path;
  return path.parent_path() / (path.stem().string() + "-" + portion + path.extension().string());
}

ImagePart load_part(const ImageOrigin& origin, const PartOptions& options, const CacheOptions& cache) {
  if (cache.path.empty()) return read_part(*origin.open(), options);
  const fs::path path = cache_path(cache.path, origin.portion, options.rank, options.split.ranks());
  if (auto part = from_cache(path, origin, options, cache)) return *std::move(part);
  // Takes the fingerprints before reading: files that change in between make the cache stale instead of wrong.
  CacheSource source{describe(origin, options), {}};
  for (const fs::path& file : origin.files) {
    source.files.push_back({file.string(), files::Fingerprint::of(file)});
  }
  ImagePart part = read_part(*origin.open(), options);
  try {
    write_cache(path, source, part);
  } catch (const files::FileError& error) {
    say(cache, std::string(error.what()) + "; continuing without a cache");
  }
  return part;
}

}  // namespace weft::data
