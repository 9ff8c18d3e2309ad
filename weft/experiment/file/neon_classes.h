// The classes that neon's files name by tags.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weft/experiment/file/description.h"
#include "weft/experiment/file/problems.h"

namespace weft::experiment {

// Returns the class of `value`'s tag if it is one of `known` ("neon.models.mlp.MLP", without "!obj:"). Otherwise
// reports the nearest one. `what` names the expected object in the message.
[[nodiscard]] std::optional<std::string> neon_class(const Value& value, const std::string& what,
                                                    const std::vector<std::string>& known, Problems& problems);

// Returns the entry of `table` for the class of `value`, or reports an unknown class like neon_class().
template <class Entry>
[[nodiscard]] std::optional<Entry> neon_lookup(const Value& value, const std::string& what,
                                               const std::map<std::string, Entry>& table, Problems& problems) {
  std::vector<std::string> known;
  for (const auto& [name, entry] : table) known.push_back(name);
  const auto found = neon_class(value, what, known, problems);
  return found ? std::optional<Entry>(table.at(*found)) : std::nullopt;
}

[[nodiscard]] std::optional<Cost> neon_cost(const Value& value, Problems& problems);
// Returns "Convnet", "MLP" or "GB", with the suffix Dist if the model is split.
[[nodiscard]] std::optional<std::string> neon_model(const Value& value, Problems& problems);

}  // namespace weft::experiment
