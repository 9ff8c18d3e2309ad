// Parses a YAML file into a tree of values with source locations, in bounded time and memory.
//
// An alias is the same Value object as its anchor: in neon files, it denotes the same object. The merge key << copies
// entries, except anchored values, which stay shared.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace weft::experiment {

// A source location. Lines and columns start at 1. Line 0 is unknown; line -k is the k-th override.
struct Place {
  std::int64_t line = 0;
  std::int64_t column = 0;
};

struct Value;
using ValuePtr = std::shared_ptr<Value>;

struct Entry {
  std::string key;
  Place place;
  ValuePtr value;
};

struct Value {
  enum class Kind : std::uint8_t { kNull, kScalar, kSequence, kMapping };

  Kind kind = Kind::kNull;
  Place place;
  std::string tag;   // "!obj:neon.models.mlp.MLP"; empty if the file has none
  std::string text;  // scalars only
  bool quoted = false;
  std::vector<ValuePtr> items;  // sequences only
  std::vector<Entry> entries;   // mappings only: in file order, keys are unique

  // Returns the value of a key, or null if the key does not exist.
  [[nodiscard]] ValuePtr find(const std::string& key) const;
  // Returns a description for error messages: "a mapping", "'text'", ...
  [[nodiscard]] std::string describe() const;
};

// Limits that protect against malicious files. A real experiment has a few hundred values.
struct DocumentLimits {
  std::size_t bytes = std::size_t{1} << 20;
  std::size_t values = 100'000;  // including aliases and merged entries
  std::size_t depth = 64;
  std::size_t keys = 1000;  // per mapping, since lookups are linear
};

// Parses a text with one document. `name` is the file name in error messages. Throws ExperimentError for invalid YAML,
// several documents, duplicate keys, unknown anchors, and text that exceeds the limits.
[[nodiscard]] ValuePtr parse_document(const std::string& text, const std::string& name,
                                      const DocumentLimits& limits = {});
// Parses a file. Also throws ExperimentError if the file cannot be read.
[[nodiscard]] ValuePtr read_document(const std::filesystem::path& path, const DocumentLimits& limits = {});

// Applies an assignment `key.key[2].key=value`, where the value is YAML. Replaces an existing value or adds a key to an
// existing mapping. List items can be selected by index or by their `name` entry. Aliases of the value see the change.
// The new value's location is line -number. Throws ExperimentError if the path does not exist.
void apply_override(Value& root, const std::string& assignment, std::int64_t number = 1);

}  // namespace weft::experiment
