#include "weft/experiment/sizes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "weft/experiment/description.h"
#include "weft/experiment/layer_output.h"
#include "weft/text/utf8.h"

namespace weft::experiment {
namespace {

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

// What a GB model trains without labels: filter, pooling, normalisation.
void check_pretraining(const ModelSpec& model, Problems& problems) {
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (model.layers[i].kind != LayerKind::kLocalFilter || !model.layers[i].pretraining) continue;
    if (i + 1 < model.layers.size() && model.layers[i + 1].kind == LayerKind::kNormPool) continue;
    problems.add(model.layers[i].place, "expected L2 pooling behind the pretrained layer '" + model.layers[i].name +
                                            "', whose outputs' sparsity it measures");
  }
}

// Whether a stack keeps the weights of its layers under this name: its own with a number behind it.
bool is_of_a_stack(const std::string& name, const std::map<std::string, std::int64_t>& depths) {
  const auto dot = name.rfind('.');
  if (dot == std::string::npos) return false;
  const auto stack = depths.find(name.substr(0, dot));
  const std::string number = name.substr(dot + 1);
  const bool digits =
      !number.empty() && number.size() < 10 && number.find_first_not_of("0123456789") == std::string::npos;
  return stack != depths.end() && digits && std::stoll(number) < stack->second &&
         number == std::to_string(std::stoll(number));
}

// Names are what weights are kept under.
void check_names(const ModelSpec& model, Problems& problems) {
  std::map<std::string, std::int64_t> depths;
  for_each_layer(model.layers, [&](const LayerSpec& layer) {
    if (layer.kind == LayerKind::kResidualStack) depths[layer.name] = layer.depth;
  });
  std::set<std::string> names;
  for_each_layer(model.layers, [&](const LayerSpec& layer) {
    if (!can_name_a_file(layer.name))
      problems.add(layer.place, "expected a name that a file can have, got '" + layer.name + "'");
    if (names.insert(layer.name).second && !is_of_a_stack(layer.name, depths)) return;
    problems.add(layer.place, "expected another name for each layer, got '" + layer.name + "' again");
  });
}

// Pre-training goes through the layers of the model itself.
void check_blocks(const ModelSpec& model, Problems& problems) {
  for (const LayerSpec& block : model.layers) {
    for (const auto* branch : {&block.body, &block.shortcut}) {
      for_each_layer(*branch, [&](const LayerSpec& layer) {
        if (layer.kind != LayerKind::kLocalFilter || !layer.pretraining || !model.pretraining.wanted) return;
        problems.add(layer.place, "expected pretraining: false in layer '" + layer.name +
                                      "', because filters in residual blocks are not pretrained");
      });
    }
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
  if (shape.empty() || flat) return std::to_string(values()) + " values";
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
    result.push_back(sizes_of(layer, at, problems));
    at = result.back().out;
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
  check_blocks(model, problems);
  for (const Metric& metric : model.metrics) {
    if (metric.largest < classes) continue;
    problems.add(metric.place, "expected fewer than " + std::to_string(classes) + " outputs in '" + metric.name +
                                   "', because there are as many classes, got " + std::to_string(metric.largest));
  }
  for_each_layer(model.layers, [&](const LayerSpec& layer) {
    if (layer.parallel.levels < 2 || experiment.split.mode == SplitSpec::Mode::kNone) return;
    problems.add(layer.place, "expected split: none beside layer_parallel in '" + layer.name +
                                  "', because only ranks that share nothing else are free for the layers");
  });
  check_last_layer(model, sizes.back(), problems);
  if (model.pretraining.wanted || model.name == "GB") check_pretraining(model, problems);
}

}  // namespace weft::experiment
