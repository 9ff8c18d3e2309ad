#include "weft/experiment/file/plain_layers.h"

#include "weft/experiment/file/forms.h"
#include "weft/experiment/file/layer_type.h"

namespace weft::experiment {
namespace {

// Aliases repeat nested lists at no cost to the file; these limits bound the expanded network.
constexpr std::int64_t kMostLayers = 10'000;
constexpr int kDeepest = 32;

// Expands `max_pool: 2` to `max_pool: {kernel: 2}`.
Value spelled_out(const Value& given, const LayerType& type) {
  const bool short_form = given.kind == Value::Kind::kScalar || given.kind == Value::Kind::kSequence;
  if (!short_form || type.short_key.empty()) return given;
  Value mapping;
  mapping.kind = Value::Kind::kMapping;
  mapping.place = given.place;
  mapping.entries.push_back({type.short_key, given.place, std::make_shared<Value>(given)});
  return mapping;
}

class LayerReader final : public LayerListReader {
 public:
  explicit LayerReader(Problems& problems) : problems_(problems) {}

  std::vector<LayerSpec> read(const Value& items) override {
    std::vector<LayerSpec> layers;
    ++depth_;
    if (depth_ > kDeepest)
      problems_.add(items.place,
                    "layer lists are nested too deeply; expected at most " + std::to_string(kDeepest) + " levels");
    for (const ValuePtr& item : layers_of(items, problems_)) {
      if (depth_ > kDeepest || problems_.full() || !may_have_another(item->place)) break;
      layers.push_back(layer(*item));
    }
    --depth_;
    return layers;
  }

 private:
  bool may_have_another(const Place& place) {
    if (++count_ == kMostLayers + 1) {
      problems_.add(place, "expected at most " + std::to_string(kMostLayers) + " layers, including repeated ones");
    }
    return count_ <= kMostLayers;
  }

  LayerSpec layer(const Value& item) {
    LayerSpec layer;
    layer.place = item.place;
    // An item is a word, or a mapping of one key to its settings.
    const bool word = item.kind == Value::Kind::kScalar;
    if (!word && item.entries.size() != 1) {
      problems_.add(item.place, "expected a layer as 'kind: {settings}', got " + item.describe());
      return layer;
    }
    layer.type = find_layer_type(word ? item.text : item.entries[0].key, item.place, problems_);
    if (layer.type == nullptr) return layer;
    const Value settings = word ? Value{} : spelled_out(*item.entries[0].value, *layer.type);
    Fields fields(settings, "a layer " + layer.type->name, problems_);
    layer.name = fields.text("name").value_or("");
    layer.settings = layer.type->read(fields, *this);
    return layer;
  }

  Problems& problems_;
  std::int64_t count_ = 0;
  int depth_ = 0;
};

// The name of a nested layer starts with the name of its block. Unnamed layers have their index.
void name_layers(std::vector<LayerSpec>& layers, const std::string& before) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    LayerSpec& layer = layers[i];
    layer.name = before + (layer.name.empty() ? std::to_string(i) : layer.name);
    if (!layer.settings) continue;
    for (LayerBranch& branch : layer.settings->branches()) name_layers(branch.layers, layer.name + "." + branch.prefix);
  }
}

}  // namespace

std::vector<LayerSpec> read_plain_layers(const Value& list, Problems& problems) {
  std::vector<LayerSpec> layers = LayerReader(problems).read(list);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].name.empty()) layers[i].name = "layer" + std::to_string(i);
  }
  name_layers(layers, "");
  return layers;
}

}  // namespace weft::experiment
