#include "weft/experiment/run/check.h"

#include <algorithm>
#include <cstdio>

#include "weft/experiment/file/description.h"
#include "weft/experiment/layers/mesh.h"
#include "weft/experiment/layers/network.h"

namespace weft::experiment {
namespace {

std::string split_text(const RankPlan& plan, std::int64_t ranks) {
  if (plan.copies > 1) return std::to_string(ranks) + " ranks: the layers of residual stacks are distributed";
  std::string text = std::to_string(plan.tiles[0]) + " x " + std::to_string(plan.tiles[1]) + " tiles";
  if (plan.shards > 1) text = std::to_string(plan.shards) + " parts of each batch, each in " + text;
  return std::to_string(ranks) + (ranks == 1 ? " rank: " : " ranks: ") + text;
}

// Formats rows as a table; each column is as wide as its widest cell.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace

std::string check_report(const Experiment& experiment, std::int64_t ranks) {
  const RankPlan plan = plan_ranks(experiment, ranks);
  const ModelSpec& model = experiment.model;
  char line[200];
  std::snprintf(line, sizeof line, "%s: %s on %s, %ld epochs, batch size %ld, seed %lu\n", experiment.name.c_str(),
                model.name.c_str(), experiment.dataset.kind.c_str(), static_cast<long>(model.epochs),
                static_cast<long>(model.batch_size), static_cast<unsigned long>(experiment.seed));
  std::vector<std::vector<std::string>> rows{{"layer", "kind", "output", "per rank", "parameters"}};
  std::int64_t total = 0;
  for (const LayerRow& row : explain(experiment, plan)) {
    rows.push_back({row.name, row.kind, row.output, row.tiles, std::to_string(row.parameters)});
    total += row.parameters;
  }
  return line + split_text(plan, ranks) + "\n\n" + table(rows) + "\n" + std::to_string(total) + " parameters\n";
}

}  // namespace weft::experiment
