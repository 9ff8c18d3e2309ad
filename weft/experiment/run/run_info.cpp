#include "weft/experiment/run/run_info.h"

#include <torch/version.h>

#include <nlohmann/json.hpp>

#include "weft/experiment/file/description.h"
#include "weft/experiment/layers/mesh.h"
#include "weft/files/atomic_file.h"
#include "weft/mpi/environment.h"

namespace weft::experiment {
namespace {

std::string split_text(const RankPlan& plan) {
  if (plan.unsplit) return plan.copies > 1 ? "layers of residual stacks" : "none";
  const std::string tiles = std::to_string(plan.tiles[0]) + " x " + std::to_string(plan.tiles[1]) + " tiles";
  return plan.shards == 1 ? tiles : std::to_string(plan.shards) + " parts of each batch, each in " + tiles;
}

// Returns an absolute path, since the folder may be relative to the working directory.
std::string data_text(const Experiment& experiment, const std::filesystem::path& data) {
  const std::string& kind = experiment.dataset.kind;
  return data.empty() ? kind + ", synthetic" : kind + " in " + std::filesystem::absolute(data).string();
}

std::string dtype_text(const Experiment& experiment) { return experiment.float64 ? "float64" : "float32"; }

// Returns "60,000".
std::string grouped(std::int64_t count) {
  std::string text = std::to_string(count);
  for (std::size_t end = text.size(); end > 3; end -= 3) text.insert(end - 3, 1, ',');
  return text;
}

std::string counted(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// Returns "Open MPI v5.0.8", without the details of its build.
std::string mpi_text() {
  const std::string text = mpi::Environment::library_version();
  return text.substr(0, text.find_first_of(",\n"));
}

}  // namespace

RunInfo run_info(const Experiment& experiment, const RankPlan& plan, const RunFacts& facts) {
  RunInfo info{
      {"file", experiment.file},
      {"set", joined(facts.overrides)},
      {"seed", std::to_string(experiment.seed)},
      {"dtype", dtype_text(experiment)},
      {"data", data_text(experiment, facts.data)},
      {"training images", std::to_string(facts.train_images)},
      {"test images", std::to_string(facts.test_images)},
      {"parameters", std::to_string(facts.parameters)},
      {"ranks", std::to_string(facts.ranks)},
      {"threads per rank", std::to_string(facts.threads)},
      {"split", split_text(plan)},
      {"weft", WEFT_VERSION},
      {"torch", TORCH_VERSION},
      {"MPI", mpi_text()},
  };
  std::erase_if(info, [](const auto& entry) { return entry.second.empty(); });
  return info;
}

std::vector<std::string> banner(const Experiment& experiment, const RankPlan& plan, const RunFacts& facts) {
  const std::string split = split_text(plan);
  return {experiment.name + ": " + grouped(facts.train_images) + " training and " + grouped(facts.test_images) +
              " test images, " + data_text(experiment, facts.data),
          grouped(facts.parameters) + " parameters, " + dtype_text(experiment) + ", seed " +
              std::to_string(experiment.seed) + "; " + counted(facts.ranks, "rank") + " with " +
              counted(facts.threads, "thread") + (facts.ranks > 1 ? " each, split: " + split : "")};
}

void write_run_info(const std::filesystem::path& run, const RunInfo& info) {
  using Json = nlohmann::ordered_json;
  Json json = Json::object();
  for (const auto& [name, value] : info) json[name] = value;
  files::write_atomically(run / "run.json", json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace weft::experiment
