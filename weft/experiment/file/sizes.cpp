#include "weft/experiment/file/sizes.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>

#include "weft/experiment/file/description.h"
#include "weft/text/utf8.h"

namespace weft::experiment {
namespace {

// Compares the declared input with the actual one. `before` is "the images" or "layers up to 'conv1'".
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

// Pre-training measures the sparsity of a filter's outputs after L2 pooling.
void check_pretraining(const ModelSpec& model, Problems& problems) {
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (!model.layers[i].settings->pretrained()) continue;
    if (i + 1 < model.layers.size() && model.layers[i + 1].is("l2_pool")) continue;
    problems.add(model.layers[i].place, "expected L2 pooling after the pretrained layer '" + model.layers[i].name +
                                            "', because pre-training measures the sparsity of pooled outputs");
  }
}

// Returns true if a layer of a stack has this name: the name of the stack and an index below its depth.
bool is_of_a_stack(const std::string& name, const std::map<std::string, std::int64_t>& depths) {
  const auto dot = name.rfind('.');
  if (dot == std::string::npos) return false;
  const auto stack = depths.find(name.substr(0, dot));
  const std::string number = name.substr(dot + 1);
  const std::int64_t index = std::strtoll(number.c_str(), nullptr, 10);  // 0 if it is not a number
  return stack != depths.end() && index >= 0 && index < stack->second && number == std::to_string(index);
}

// Layer names must be unique, because checkpoints store weights by layer name.
void check_names(const ModelSpec& model, Problems& problems) {
  std::map<std::string, std::int64_t> depths;
  for_each_layer(model.layers, [&](const LayerSpec& layer) {
    if (layer.settings->depth() > 0) depths[layer.name] = layer.settings->depth();
  });
  std::set<std::string> names;
  for_each_layer(model.layers, [&](const LayerSpec& layer) {
    if (!can_name_a_file(layer.name))
      problems.add(layer.place, "layer name '" + layer.name + "' cannot be used as a file name");
    if (names.insert(layer.name).second && !is_of_a_stack(layer.name, depths)) return;
    problems.add(layer.place, "layer name '" + layer.name + "' is already used; expected a unique name for each layer");
  });
}

// Pre-training visits only the layers of the model itself.
void check_blocks(const ModelSpec& model, Problems& problems) {
  for (const LayerSpec& block : model.layers) {
    for (const LayerBranch& branch : block.settings->branches()) {
      for_each_layer(branch.layers, [&](const LayerSpec& layer) {
        if (!layer.settings->pretrained() || !model.pretraining.wanted) return;
        problems.add(layer.place, "expected pretraining: false in layer '" + layer.name +
                                      "', because filters in residual blocks are not pretrained");
      });
    }
  }
}

// Some stages and pictures of GB models depend on the last layer.
void check_last_layer(const ModelSpec& model, const LayerSizes& last, Problems& problems) {
  const Pretraining& wanted = model.pretraining;
  if ((wanted.spot_check || wanted.visualize) && last.in.shape.empty()) {
    problems.add(model.layers.back().place,
                 "expected maps before the last layer, because spot_check and visualize show their units, got " +
                     last.in.describe());
  }
  if (wanted.initial_epochs > 0 && !model.layers.back().settings->fully_connected()) {
    problems.add(model.layers.back().place, "expected a linear last layer, because the initial epochs train it alone");
  }
}

std::vector<LayerSizes> chain_sizes(const std::vector<LayerSpec>& layers, const Extent& in, Problems& problems);

// Larger sizes exceed the memory of any machine.
void require_memory(const LayerSpec& layer, const LayerSizes& sizes, Problems& problems) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (layer.settings->parameter_count(sizes) <= kMost && sizes.out.values() <= kMost) return;
  problems.add(layer.place, "layer '" + layer.name + "' has more than " + std::to_string(kMost) +
                                " values or weights; use smaller sizes");
}

LayerSizes sizes_of(const LayerSpec& layer, const Extent& in, Problems& problems) {
  LayerSizes sizes{in, in};
  if (layer.settings->needs_field() && (in.shape.empty() || in.flat)) {
    problems.add(layer.place, "expected images before layer '" + layer.name + "', got " + in.describe());
    return sizes;
  }
  for (const LayerBranch& branch : layer.settings->branches())
    sizes.branches.push_back(chain_sizes(branch.layers, in, problems));
  sizes.out = layer.settings->output(sizes, LayerProblems(layer, problems));
  require_memory(layer, sizes, problems);
  return sizes;
}

std::vector<LayerSizes> chain_sizes(const std::vector<LayerSpec>& layers, const Extent& in, Problems& problems) {
  std::vector<LayerSizes> result;
  for (const LayerSpec& layer : layers) {
    result.push_back(sizes_of(layer, result.empty() ? in : result.back().out, problems));
  }
  return result;
}

}  // namespace

std::string text_of(const Sizes& sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

std::int64_t saturating_product(const Sizes& factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return std::numeric_limits<std::int64_t>::max();
  }
  return product;
}

void for_each_layer(const std::vector<LayerSpec>& layers, const std::function<void(const LayerSpec&)>& visit) {
  for (const LayerSpec& layer : layers) {
    for (const LayerBranch& branch : layer.settings->branches()) for_each_layer(branch.layers, visit);
    visit(layer);
  }
}

bool can_name_a_file(const std::string& name) {
  const bool printable = std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  return !name.empty() && name.size() <= 200 && name != "." && name != ".." && name.find('/') == std::string::npos &&
         printable && text::is_utf8(name);
}

std::int64_t Extent::values() const {
  Sizes factors{maps};
  factors.insert(factors.end(), shape.begin(), shape.end());
  return saturating_product(factors);
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
  if (model.layers.empty()) return problems.add(model.place, "the model has no layers; expected at least one");
  const LayerSpec& last = model.layers.back();
  const std::int64_t classes = class_count(experiment.dataset);
  if (!sizes.back().out.shape.empty() || sizes.back().out.maps != classes) {
    problems.add(last.place, "expected " + std::to_string(classes) +
                                 " outputs of the last layer, one for each class, got " + sizes.back().out.describe());
  }
  if (model.cost == Cost::kBinaryCrossEntropy && last.settings->activation().kind != Activation::kLogistic) {
    problems.add(last.place, "expected a logistic last layer, because binary cross entropy expects values from 0 to 1");
  }
  check_names(model, problems);
  check_blocks(model, problems);
  for (const Metric& metric : model.metrics) {
    if (metric.largest < classes) continue;
    problems.add(metric.place, "metric '" + metric.name + "' needs more than " + std::to_string(metric.largest) +
                                   " classes, but the data set has " + std::to_string(classes));
  }
  for_each_layer(model.layers, [&](const LayerSpec& layer) {
    if (!layer.settings->needs_unsplit_ranks() || experiment.split.mode == SplitSpec::Mode::kNone) return;
    problems.add(layer.place,
                 "expected split: none with layer_parallel in '" + layer.name +
                     "', because layers can only be spread over ranks that do not split images or batches");
  });
  check_last_layer(model, sizes.back(), problems);
  if (model.pretraining.wanted || model.name == "GB") check_pretraining(model, problems);
}

}  // namespace weft::experiment
