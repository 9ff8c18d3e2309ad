#include "weft/experiment/file/fields.h"
#include "weft/experiment/file/plain_layers.h"
#include "weft/text/spelling.h"

namespace weft::experiment {
namespace {

constexpr IntegerRange kPlaces{.least = 1, .most = 1'000'000};

Metric top_k_error(std::int64_t count, const Place& place) {
  return {"top" + std::to_string(count) + "_error", count, place};
}

// Returns k of a name `top<k>`.
std::optional<std::int64_t> places_in(const std::string& name) {
  if (!name.starts_with("top") || name.size() == 3 || name.size() > 9) return std::nullopt;
  const std::string digits = name.substr(3);
  if (digits.find_first_not_of("0123456789") != std::string::npos || digits[0] == '0') return std::nullopt;
  return std::stoll(digits);
}

void read_metric(const Value& item, std::vector<Metric>& metrics, Problems& problems) {
  if (item.kind == Value::Kind::kMapping) {
    Fields fields(item, "a metric", problems);
    fields.require("top_k");
    if (const auto count = fields.integer("top_k", kPlaces)) metrics.push_back(top_k_error(*count, item.place));
    return;
  }
  if (item.kind == Value::Kind::kScalar) {
    if (item.text == "error") return;  // the error is always evaluated
    if (item.text == "auc") return metrics.push_back({"auc", 0, item.place});
    if (const auto count = places_in(item.text)) return metrics.push_back(top_k_error(*count, item.place));
  }
  const auto meant = text::nearest(item.text, {"error", "top5", "auc"});
  problems.add(item.place, "expected a metric (error, auc, or top<k> such as top5), got " +
                               (item.text.empty() ? item.describe() : "'" + item.text + "'") +
                               (meant ? "; did you mean '" + *meant + "'?" : ""));
}

}  // namespace

std::vector<Metric> read_metrics(const Value& list, Problems& problems) {
  std::vector<Metric> metrics;
  for (const ValuePtr& item : list.items) {
    read_metric(*item, metrics, problems);
    for (std::size_t i = 0; i + 1 < metrics.size(); ++i) {
      if (metrics[i].name != metrics.back().name) continue;
      problems.add(item->place, "duplicate metric '" + metrics.back().name + "'");
      metrics.pop_back();
      break;
    }
  }
  return metrics;
}

}  // namespace weft::experiment
