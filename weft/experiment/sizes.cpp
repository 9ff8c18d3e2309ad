#include "weft/experiment/sizes.h"

#include <algorithm>
#include <limits>
#include <set>

#include "weft/experiment/description.h"
#include "weft/text/utf8.h"

namespace weft::experiment {
namespace {

bool is_filter(LayerKind kind) { return kind == LayerKind::kConvolution || kind == LayerKind::kLocalFilter; }

bool is_windowed(LayerKind kind) {
  return is_filter(kind) || kind == LayerKind::kMaxPool || kind == LayerKind::kAveragePool ||
         kind == LayerKind::kNormPool;
}

bool needs_field(LayerKind kind) {
  return is_windowed(kind) || kind == LayerKind::kContrastNorm || kind == LayerKind::kGlobalAverage ||
         kind == LayerKind::kResidualStack;
}

std::string text_of(const Sizes& sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

// What stands before: "the images" or "layer 'conv1'".
void compare(const LayerSpec& layer, const Extent& in, const std::string& before, Problems& problems) {
  const auto differs = [&](const std::string& key, const std::string& said, const std::string& is) {
    problems.add(layer.place, "expected " + key + " " + is + " in layer '" + layer.name + "', because " + before +
                                  " give " + in.describe() + "; got " + said);
  };
  if (layer.declared_maps && !in.shape.empty() && *layer.declared_maps != in.maps) {
    differs("nifm", std::to_string(*layer.declared_maps), std::to_string(in.maps));
  }
  if (layer.declared_shape && !in.shape.empty() && *layer.declared_shape != in.shape) {
    differs("ifmshape", text_of(*layer.declared_shape), text_of(in.shape));
  }
  const std::int64_t declared = layer.declared_inputs.value_or(in.values());
  if (declared != in.values() && !(layer.counts_bias && declared == in.values() + 1)) {
    differs("nin", std::to_string(declared), std::to_string(in.values()));
  }
}

Extent windowed(const LayerSpec& layer, const Extent& in, Problems& problems) {
  Extent out{is_filter(layer.kind) ? layer.outputs : in.maps, in.shape};
  for (std::size_t i = 0; i < in.shape.size(); ++i) {
    const std::int64_t kernel = layer.kernel[std::min(i, layer.kernel.size() - 1)];
    const std::int64_t padding = layer.padding[std::min(i, layer.padding.size() - 1)];
    const std::int64_t room = in.shape[i] + 2 * padding - kernel;
    if (!is_filter(layer.kind) && 2 * padding > kernel) {
      problems.add(layer.place, "expected padding of at most half a window in layer '" + layer.name + "', got " +
                                    text_of(layer.padding));
      return out;
    }
    if (room < 0) {
      problems.add(layer.place, "expected a window that fits into " + text_of(in.shape) + " in layer '" + layer.name +
                                    "', got " + text_of(layer.kernel));
      return out;
    }
    out.shape[i] = room / layer.stride[std::min(i, layer.stride.size() - 1)] + 1;
  }
  return out;
}

Extent output_of(const LayerSpec& layer, const Extent& in, Problems& problems) {
  if (needs_field(layer.kind) && in.shape.empty()) {
    problems.add(layer.place, "expected images before layer '" + layer.name + "', got " + in.describe());
    return in;
  }
  if (is_windowed(layer.kind)) return windowed(layer, in, problems);
  if (layer.kind == LayerKind::kLinear) return {layer.outputs, {}};
  if (layer.kind == LayerKind::kGlobalAverage) return {in.maps, {}};
  const bool even = std::any_of(layer.kernel.begin(), layer.kernel.end(), [](std::int64_t k) { return k % 2 == 0; });
  const bool centred = layer.kind == LayerKind::kContrastNorm || layer.kind == LayerKind::kResidualStack;
  if (even && centred) {
    problems.add(layer.place, "expected odd windows in layer '" + layer.name + "', got " + text_of(layer.kernel));
  }
  return in;
}

// What a GB model trains without labels: filter, pooling, normalisation.
void check_pretraining(const ModelSpec& model, Problems& problems) {
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (model.layers[i].kind != LayerKind::kLocalFilter || !model.layers[i].pretraining) continue;
    if (i + 1 < model.layers.size() && model.layers[i + 1].kind == LayerKind::kNormPool) continue;
    problems.add(model.layers[i].place, "expected L2 pooling behind the pretrained layer '" + model.layers[i].name +
                                            "', whose outputs' sparsity it measures");
  }
}

// Names are what weights are kept under.
void check_names(const ModelSpec& model, Problems& problems) {
  std::set<std::string> names;
  for (const LayerSpec& layer : model.layers) {
    if (!can_name_a_file(layer.name))
      problems.add(layer.place, "expected a name that a file can have, got '" + layer.name + "'");
    if (names.insert(layer.name).second) continue;
    problems.add(layer.place, "expected another name for each layer, got '" + layer.name + "' again");
  }
}

// What GB's stages and pictures need of the end of the network.
void check_last_layer(const ModelSpec& model, const LayerSizes& last, Problems& problems) {
  const Pretraining& wanted = model.pretraining;
  if ((wanted.spot_check || wanted.visualize) && last.in.shape.empty()) {
    problems.add(model.layers.back().place,
                 "expected maps before the last layer, whose units spot_check and visualize "
                 "look at, got " +
                     last.in.describe());
  }
  if (wanted.initial_epochs > 0 && model.layers.back().kind != LayerKind::kLinear) {
    problems.add(model.layers.back().place,
                 "expected a linear last layer, which the initial epochs train alone, got one without weights");
  }
}

// Whether somebody may mean as much: beyond, sizes multiply to more than any machine's memory.
void require_memory(const LayerSpec& layer, const LayerSizes& sizes, Problems& problems) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const Extent taps{is_windowed(layer.kind) ? sizes.in.maps : sizes.in.values(), layer.kernel};
  const bool weights = is_filter(layer.kind) || layer.kind == LayerKind::kLinear;
  std::int64_t count = 0;
  const bool too_many = weights && (__builtin_mul_overflow(layer.outputs, taps.values(), &count) || count > kMost);
  if (!too_many && sizes.out.values() <= kMost) return;
  problems.add(layer.place, "expected at most " + std::to_string(kMost) + " values and weights in layer '" + layer.name +
                                "', got more");
}

}  // namespace

bool can_name_a_file(const std::string& name) {
  const bool printable = std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  return !name.empty() && name.size() <= 200 && name != "." && name != ".." && name.find('/') == std::string::npos &&
         printable && text::is_utf8(name);
}

std::int64_t Extent::values() const {
  std::int64_t count = maps;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(count, size, &count)) return std::numeric_limits<std::int64_t>::max();
  }
  return count;
}

std::string Extent::describe() const {
  if (shape.empty()) return std::to_string(maps) + " values";
  return std::to_string(maps) + (maps == 1 ? " map of " : " maps of ") + text_of(shape);
}

Extent image_extent(const DatasetSpec& dataset) {
  if (dataset.kind == "cifar10") return {3, {32, 32}};
  if (dataset.made_up()) return {dataset.maps, dataset.shape};
  return {1, {28, 28}};
}

std::int64_t class_count(const DatasetSpec& dataset) { return dataset.made_up() ? dataset.classes : 10; }

std::vector<LayerSizes> layer_sizes(const Experiment& experiment, Problems& problems) {
  std::vector<LayerSizes> result;
  Extent at = image_extent(experiment.dataset);
  std::string before = "the images";
  for (const LayerSpec& layer : experiment.model.layers) {
    compare(layer, at, before, problems);
    const Extent out = output_of(layer, at, problems);
    result.push_back({at, out});
    require_memory(layer, result.back(), problems);
    at = out;
    before = "layers up to '" + layer.name + "'";
  }
  return result;
}

void check_model(const Experiment& experiment, const std::vector<LayerSizes>& sizes, Problems& problems) {
  const ModelSpec& model = experiment.model;
  if (model.layers.empty()) return problems.add(model.place, "expected layers in the model, got none");
  const LayerSpec& last = model.layers.back();
  const std::int64_t classes = class_count(experiment.dataset);
  if (!sizes.back().out.shape.empty() || sizes.back().out.maps != classes) {
    problems.add(last.place, "expected " + std::to_string(classes) +
                                 " outputs of the last layer, one for each class, got " + sizes.back().out.describe());
  }
  if (model.cost == Cost::kBinaryCrossEntropy && last.activation != Activation::kLogistic) {
    problems.add(last.place, "expected a logistic last layer: this cross entropy takes values from 0 to 1");
  }
  check_names(model, problems);
  for (const LayerSpec& layer : model.layers) {
    if (layer.parallel.levels < 2 || experiment.split.mode == SplitSpec::Mode::kNone) continue;
    problems.add(layer.place, "expected split: none beside layer_parallel in '" + layer.name +
                                  "', because only ranks that share nothing else are free for the layers");
  }
  check_last_layer(model, sizes.back(), problems);
  if (model.pretraining.wanted || model.name == "GB") check_pretraining(model, problems);
}

}  // namespace weft::experiment
