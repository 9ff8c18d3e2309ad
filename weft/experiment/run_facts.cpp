#include "weft/experiment/run_facts.h"

#include <torch/version.h>

#include <nlohmann/json.hpp>

#include "weft/experiment/description.h"
#include "weft/experiment/mesh.h"
#include "weft/files/atomic_file.h"
#include "weft/mpi/environment.h"

namespace weft::experiment {
namespace {

std::string split_text(const RankPlan& plan) {
  if (plan.unsplit) return plan.copies > 1 ? "layers of residual stacks" : "none";
  const std::string tiles = std::to_string(plan.tiles[0]) + " x " + std::to_string(plan.tiles[1]) + " tiles";
  return plan.shards == 1 ? tiles : std::to_string(plan.shards) + " parts of each batch, " + tiles + " each";
}

// The folder may have been given as seen from where the command was started.
std::string data_text(const Experiment& experiment, const std::filesystem::path& data) {
  const std::string& kind = experiment.dataset.kind;
  return data.empty() ? kind + ", made up" : kind + " in " + std::filesystem::absolute(data).string();
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// "Open MPI v5.0.8": without where and when it was built.
std::string mpi_text() {
  const std::string text = mpi::Environment::library_version();
  return text.substr(0, text.find_first_of(",\n"));
}

}  // namespace

Facts facts_of(const Experiment& experiment, const RankPlan& plan, std::int64_t ranks,
               const std::filesystem::path& data, const std::vector<std::string>& overrides) {
  Facts facts{
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
  std::erase_if(facts, [](const auto& fact) { return fact.second.empty(); });
  return facts;
}

void write_facts(const std::filesystem::path& run, const Facts& facts) {
  using Json = nlohmann::ordered_json;
  Json json = Json::object();
  for (const auto& [name, value] : facts) json[name] = value;
  files::write_atomically(run / "run.json", json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace weft::experiment
