#include "weft/experiment/plain_layers.h"

#include "weft/experiment/forms.h"
#include "weft/experiment/plain_kinds.h"

namespace weft::experiment {
namespace {

// Aliases repeat lists for nothing, also such that hold others: what they stand for has to stay small.
constexpr std::int64_t kMostLayers = 10'000;
constexpr int kDeepest = 32;

// `kernel: 2` written out, for `max_pool: 2`.
Value spelled_out(const Value& given, const PlainKind& kind) {
  const bool short_form = given.kind == Value::Kind::kScalar || given.kind == Value::Kind::kSequence;
  if (!short_form || kind.short_key == nullptr) return given;
  Value mapping;
  mapping.kind = Value::Kind::kMapping;
  mapping.place = given.place;
  mapping.entries.push_back({kind.short_key, given.place, std::make_shared<Value>(given)});
  return mapping;
}

class LayerReader {
 public:
  explicit LayerReader(Problems& problems) : problems_(problems) {}

  std::vector<LayerSpec> list(const Value& items) {
    std::vector<LayerSpec> layers;
    ++depth_;
    if (depth_ > kDeepest)
      problems_.add(items.place,
                    "expected at most " + std::to_string(kDeepest) + " lists of layers in each other, got more");
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
      problems_.add(place, "expected at most " + std::to_string(kMostLayers) + " layers, got more");
    }
    return count_ <= kMostLayers;
  }

  LayerSpec layer(const Value& item) {
    LayerSpec layer;
    layer.place = item.place;
    // A word alone, or one key with its settings.
    const bool word = item.kind == Value::Kind::kScalar;
    if (!word && item.entries.size() != 1) {
      problems_.add(item.place, "expected a layer as 'kind: {settings}', got " + item.describe());
      return layer;
    }
    const PlainKind* const kind = plain_kind(word ? item.text : item.entries[0].key, item.place, problems_);
    if (kind == nullptr) return layer;
    layer.kind = kind->kind;
    const Value settings = word ? Value{} : spelled_out(*item.entries[0].value, *kind);
    Fields fields(settings, std::string("a layer ") + kind->name, problems_);
    layer.name = fields.text("name").value_or("");
    kind->read(fields, layer);
    if (layer.kind == LayerKind::kResidualBlock) block(fields, layer);
    return layer;
  }

  void block(Fields& fields, LayerSpec& layer) {
    fields.require("layers");
    if (const Value* body = fields.list("layers")) layer.body = list(*body);
    if (const Value* shortcut = fields.list("shortcut")) layer.shortcut = list(*shortcut);
    read_activation(fields, layer, "linear");
  }

  Problems& problems_;
  std::int64_t count_ = 0;
  int depth_ = 0;
};

// Layers of a block have its name before theirs, or their number.
void name_layers(std::vector<LayerSpec>& layers, const std::string& before) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    LayerSpec& layer = layers[i];
    layer.name = before + (layer.name.empty() ? std::to_string(i) : layer.name);
    name_layers(layer.body, layer.name + ".");
    name_layers(layer.shortcut, layer.name + ".shortcut.");
  }
}

}  // namespace

std::vector<LayerSpec> read_plain_layers(const Value& list, Problems& problems) {
  std::vector<LayerSpec> layers = LayerReader(problems).list(list);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].name.empty()) layers[i].name = "layer" + std::to_string(i);
  }
  name_layers(layers, "");
  return layers;
}

}  // namespace weft::experiment
