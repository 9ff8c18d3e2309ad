#include "weft/experiment/neon_classes.h"

#include <algorithm>
#include <map>

#include "weft/experiment/fields.h"
#include "weft/text/spelling.h"

namespace weft::experiment {
namespace {

constexpr const char* kMark = "!obj:";
constexpr const char* kLayers = "neon.models.layer.";

const std::map<std::string, NeonLayerClass>& layer_classes() {
  static const std::map<std::string, NeonLayerClass> classes = [] {
    std::map<std::string, NeonLayerClass> table;
    const auto add = [&](const std::string& name, LayerKind kind, bool bias = false) {
      table[kLayers + name] = {kind, false, bias};
      table[kLayers + name + "Dist"] = {kind, true, bias};
    };
    add("ConvLayer", LayerKind::kConvolution);
    add("MaxPoolingLayer", LayerKind::kMaxPool);
    add("AveragePoolingLayer", LayerKind::kAveragePool);
    add("L2PoolingLayer", LayerKind::kNormPool);
    add("LCNLayer", LayerKind::kContrastNorm);
    add("LocalFilteringLayer", LayerKind::kLocalFilter);
    add("LayerWithNoBias", LayerKind::kLinear);
    add("Layer", LayerKind::kLinear, true);
    return table;
  }();
  return classes;
}

template <class Kind>
std::optional<Kind> lookup(const Value& value, const std::string& what, const std::map<std::string, Kind>& table,
                           Problems& problems) {
  std::vector<std::string> known;
  for (const auto& [name, kind] : table) known.push_back(name);
  const auto found = neon_class(value, what, known, problems);
  return found ? std::optional<Kind>(table.at(*found)) : std::nullopt;
}

}  // namespace

std::optional<std::string> neon_class(const Value& value, const std::string& what,
                                      const std::vector<std::string>& known, Problems& problems) {
  if (!value.tag.starts_with(kMark)) {
    problems.add(value.place,
                 "expected " + what + " as an object !obj:" + known.front() + " or its kin, got " + value.describe());
    return std::nullopt;
  }
  const std::string name = value.tag.substr(std::string(kMark).size());
  if (std::find(known.begin(), known.end(), name) != known.end()) return name;
  const auto meant = text::nearest(name, known);
  problems.add(value.place, "expected " + what + ", got the unknown class " + name + "; " +
                                (meant ? "did you mean " + *meant + "?" : "known are " + text::listed(known)));
  return std::nullopt;
}

std::optional<NeonLayerClass> neon_layer_class(const Value& value, Problems& problems) {
  return lookup(value, "a layer", layer_classes(), problems);
}

std::optional<Activation> neon_activation(const Value& value, Problems& problems) {
  static const std::map<std::string, Activation> table{{"neon.transforms.logistic.Logistic", Activation::kLogistic},
                                                       {"neon.transforms.rectified.RectLin", Activation::kRectified},
                                                       {"neon.transforms.tanh.Tanh", Activation::kTanh},
                                                       {"neon.transforms.linear.Linear", Activation::kLinear},
                                                       {"neon.transforms.linear.Identity", Activation::kLinear}};
  const Fields nothing_inside(value, "an activation", problems);
  return lookup(value, "an activation", table, problems);
}

std::optional<Cost> neon_cost(const Value& value, Problems& problems) {
  static const std::map<std::string, Cost> table{
      {"neon.transforms.cross_entropy.CrossEntropy", Cost::kBinaryCrossEntropy},
      {"neon.transforms.sum_squared.SumSquaredDiffs", Cost::kSumSquared}};
  Fields fields(value, "a cost", problems);
  fields.accept({"olayer", "backend"});
  fields.accept_ending("_dtype");
  return lookup(value, "a cost", table, problems);
}

std::optional<std::string> neon_model(const Value& value, Problems& problems) {
  static const std::map<std::string, std::string> table{{"neon.models.mlp.MLP", "MLP"},
                                                        {"neon.models.mlp_dist.MLPDist", "MLPDist"},
                                                        {"neon.models.convnet.Convnet", "Convnet"},
                                                        {"neon.models.convnet_dist.ConvnetDist", "ConvnetDist"},
                                                        {"neon.models.gb.GB", "GB"},
                                                        {"neon.models.gb_dist.GBDist", "GBDist"}};
  return lookup(value, "a model", table, problems);
}

}  // namespace weft::experiment
