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

RunInfo run_info(const Experiment& experiment, const RankPlan& plan, std::int64_t ranks,
                 const std::filesystem::path& data, const std::vector<std::string>& overrides) {
  RunInfo info{
      {"file", experiment.file},
      {"set", joined(overrides)},
      {"seed", std::to_string(experiment.seed)},
      {"dtype", experiment.float64 ? "float64" : "float32"},
      {"data", data_text(experiment, data)},
      {"ranks", std::to_string(ranks)},
      {"split", split_text(plan)},
      {"weft", WEFT_VERSION},
      {"torch", TORCH_VERSION},
      {"MPI", mpi_text()},
  };
  std::erase_if(info, [](const auto& entry) { return entry.second.empty(); });
  return info;
}

void write_run_info(const std::filesystem::path& run, const RunInfo& info) {
  using Json = nlohmann::ordered_json;
  Json json = Json::object();
  for (const auto& [name, value] : info) json[name] = value;
  files::write_atomically(run / "run.json", json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace weft::experiment
