#include "weft/experiment/file/neon_classes.h"

#include <algorithm>

#include "weft/experiment/file/fields.h"
#include "weft/text/spelling.h"

namespace weft::experiment {
namespace {

constexpr const char* kMark = "!obj:";

}  // namespace

std::optional<std::string> neon_class(const Value& value, const std::string& what,
                                      const std::vector<std::string>& known, Problems& problems) {
  if (!value.tag.starts_with(kMark)) {
    problems.add(value.place,
                 "expected " + what + " as an object such as !obj:" + known.front() + ", got " + value.describe());
    return std::nullopt;
  }
  const std::string name = value.tag.substr(std::string(kMark).size());
  if (std::find(known.begin(), known.end(), name) != known.end()) return name;
  const auto meant = text::nearest(name, known);
  problems.add(value.place,
               "expected " + what + ", got the unknown class " + name + "; " +
                   (meant ? "did you mean " + *meant + "?" : "the known classes are " + text::listed(known)));
  return std::nullopt;
}

std::optional<Cost> neon_cost(const Value& value, Problems& problems) {
  static const std::map<std::string, Cost> table{
      {"neon.transforms.cross_entropy.CrossEntropy", Cost::kBinaryCrossEntropy},
      {"neon.transforms.sum_squared.SumSquaredDiffs", Cost::kSumSquared}};
  Fields fields(value, "a cost", problems);
  fields.accept({"olayer", "backend"});
  static_cast<void>(fields.boolean("shortcut_deriv"));
  fields.accept_ending("_dtype");
  return neon_lookup(value, "a cost", table, problems);
}

std::optional<std::string> neon_model(const Value& value, Problems& problems) {
  static const std::map<std::string, std::string> table{{"neon.models.mlp.MLP", "MLP"},
                                                        {"neon.models.mlp_dist.MLPDist", "MLPDist"},
                                                        {"neon.models.convnet.Convnet", "Convnet"},
                                                        {"neon.models.convnet_dist.ConvnetDist", "ConvnetDist"},
                                                        {"neon.models.gb.GB", "GB"},
                                                        {"neon.models.gb_dist.GBDist", "GBDist"}};
  return neon_lookup(value, "a model", table, problems);
}

}  // namespace weft::experiment
