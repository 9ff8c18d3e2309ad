#include "weft/experiment/file/layer_type.h"

#include <map>
#include <stdexcept>

#include "weft/experiment/file/neon_classes.h"
#include "weft/text/spelling.h"

namespace weft::experiment {
namespace {

// Sorted by name: the order of registration depends on the linker.
std::map<std::string, LayerType>& types() {
  static std::map<std::string, LayerType> table;
  return table;
}

}  // namespace

void register_layer_type(LayerType type) {
  const std::string name = type.name;
  if (!types().emplace(name, std::move(type)).second)
    throw std::invalid_argument("weft: layer type '" + name + "' is registered twice; choose another name");
}

const LayerType* find_layer_type(const std::string& name, const Place& place, Problems& problems) {
  const auto found = types().find(name);
  if (found != types().end()) return &found->second;
  std::vector<std::string> known;
  for (const auto& [known_name, type] : types()) known.push_back(known_name);
  const auto meant = text::nearest(name, known);
  problems.add(place, "unknown layer type '" + name + "'; " +
                          (meant ? "did you mean '" + *meant + "'?" : "the known types are " + text::listed(known)));
  return nullptr;
}

std::optional<NeonLayerType> find_neon_layer_type(const Value& value, Problems& problems) {
  std::map<std::string, NeonLayerType> classes;
  for (const auto& [name, type] : types()) {
    for (const NeonClass& neon : type.neon_classes) {
      classes[neon.name] = {&type, neon.has_bias, false};
      classes[neon.name + "Dist"] = {&type, neon.has_bias, true};
    }
  }
  return neon_lookup(value, "a layer", classes, problems);
}

bool LayerSpec::is(const std::string& type_name) const { return type != nullptr && type->name == type_name; }

void LayerProblems::expected(const std::string& expected, const std::string& got) const {
  add("expected " + expected + " in layer '" + name() + "', got " + got);
}

}  // namespace weft::experiment
