// The table of layer types. Each entry names a type in both forms of files and reads its settings.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "weft/experiment/file/fields.h"
#include "weft/experiment/file/layer_spec.h"

namespace weft::experiment {

// Reads a list of layers inside a layer of weft's own form.
class LayerListReader {
 public:
  virtual ~LayerListReader() = default;
  [[nodiscard]] virtual std::vector<LayerSpec> read(const Value& list) = 0;
};

// A layer class in neon's file format. Files may also use the name with the suffix Dist.
struct NeonClass {
  std::string name;  // "neon.models.layer.ConvLayer"
  bool has_bias = false;
};

// Settings of a neon model that apply to layers without their own.
struct NeonDefaults {
  LearningRule rule{};
  bool has_learning_rule = false;  // the model has a `learning_rule`; otherwise `rule` comes from its other keys
  bool optional_biases = false;    // neon 0.6: layers have a bias only if weight_init contains bias_init
  double pretrain_rate = 0;
  double sparsity = 0;
  bool tied_weights = false;
};

// A layer in neon's file format while it is read.
struct NeonLayer {
  LayerSpec& spec;
  bool has_bias = false;
  NeonDefaults defaults{};
};

struct LayerType {
  std::string name;  // name in weft's own form, as in `- max_pool: {kernel: 2}`
  std::function<LayerSettingsPtr(Fields&, LayerListReader&)> read;
  std::string short_key{};  // `- max_pool: 2` sets this key; empty if the type needs a mapping
  std::vector<NeonClass> neon_classes{};
  std::function<LayerSettingsPtr(Fields&, NeonLayer&)> read_neon{};
};

// Returns the entry of a settings class, which is constructed from (Fields&, LayerListReader&) and, if it has neon
// classes, also from (Fields&, NeonLayer&).
template <class Settings>
[[nodiscard]] LayerType layer_type(std::string name, std::string short_key = "", std::vector<NeonClass> neon = {}) {
  LayerType type{std::move(name),
                 [](Fields& fields, LayerListReader& lists) { return std::make_shared<Settings>(fields, lists); },
                 std::move(short_key), std::move(neon)};
  if constexpr (std::is_constructible_v<Settings, Fields&, NeonLayer&>) {
    type.read_neon = [](Fields& fields, NeonLayer& layer) { return std::make_shared<Settings>(fields, layer); };
  }
  return type;
}

// Adds a type to the table. Throws std::invalid_argument if the name exists already. Types must be registered before
// files are read; the library registers its own when it is loaded.
void register_layer_type(LayerType type);

// Registers a type during static initialization.
struct RegisterLayerType {
  explicit RegisterLayerType(LayerType type) { register_layer_type(std::move(type)); }
};

// Returns the type of this name. If it is unknown, returns null and reports the nearest name at `place`.
[[nodiscard]] const LayerType* find_layer_type(const std::string& name, const Place& place, Problems& problems);

struct NeonLayerType {
  const LayerType* type;
  bool has_bias;
  bool split;  // the tag has the suffix Dist
};
// Returns the type of a value tagged with a neon class. If it is unknown, reports the nearest class.
[[nodiscard]] std::optional<NeonLayerType> find_neon_layer_type(const Value& value, Problems& problems);

}  // namespace weft::experiment
