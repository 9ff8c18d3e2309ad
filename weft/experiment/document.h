// A YAML file as a tree that remembers where everything stands, read in bounded time and memory.
//
// Anchored values are shared: an alias is the same Value object, as in the files of neon, where it stands for one
// object. Entries that a mapping gets by << are copies, but for anchored values among them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace weft::experiment {

// Lines and columns count from 1; line 0 is no place in the file, line -k the k-th override.
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
  std::string tag;   // "!obj:neon.models.mlp.MLP"; empty where none is written
  std::string text;  // of a scalar
  bool quoted = false;
  std::vector<ValuePtr> items;  // of a sequence
  std::vector<Entry> entries;   // of a mapping, in order, no key twice

  // The entry's value; null where the key is absent.
  [[nodiscard]] ValuePtr find(const std::string& key) const;
  // "a mapping", "text", ..., as errors say it.
  [[nodiscard]] std::string describe() const;
};

// What a file may cost. A real experiment has some hundred values.
struct DocumentLimits {
  std::size_t bytes = std::size_t{1} << 20;
  std::size_t values = 100'000;  // aliases and merged entries count
  std::size_t depth = 64;
  std::size_t keys = 1000;  // of one mapping, which readers look through again and again
};

// One document. Throws ExperimentError for what is no YAML, for several documents, keys twice or unknown anchors, and
// for what exceeds the limits. `name` stands in errors.
[[nodiscard]] ValuePtr parse_document(const std::string& text, const std::string& name,
                                      const DocumentLimits& limits = {});
// The same of a file; throws also where it cannot be read.
[[nodiscard]] ValuePtr read_document(const std::filesystem::path& path, const DocumentLimits& limits = {});

// `key.key[2].key=value`, the value in YAML: replaces what is there, or adds a key to a mapping that is there. A list's
// item can also be named by its `name` entry. What shares the value by an alias shares the change. Its place is line
// -number. Throws ExperimentError where the path leads nowhere.
void apply_override(Value& root, const std::string& assignment, std::int64_t number = 1);

}  // namespace weft::experiment
