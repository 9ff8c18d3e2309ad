#include "weft/experiment/run/run_pictures.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <numeric>

#include "weft/experiment/file/description.h"
#include "weft/experiment/run/run_folder.h"
#include "weft/experiment/training/stimuli.h"

namespace weft::experiment {
namespace {

using at::Tensor;
namespace fs = std::filesystem;

constexpr std::int64_t kFilters = 64;
constexpr std::int64_t kReconstructions = 8;

std::vector<double> pixels_of(const Tensor& image) {
  const Tensor wide = image.detach().to(at::kDouble).contiguous();
  const auto* data = wide.const_data_ptr<double>();
  return {data, data + wide.numel()};
}

// Writes filters [filters, maps, height, width] in color if there are 3 maps, otherwise the first map.
void write_filters(const fs::path& run, const std::string& layer, Tensor filters) {
  if (filters.size(1) != 3) filters = filters.narrow(1, 0, 1);
  std::vector<Picture> pictures;
  for (std::int64_t i = 0; i < std::min(filters.size(0), kFilters); ++i) {
    pictures.push_back({std::to_string(i), pixels_of(filters[i])});
  }
  write_pictures(run, "filters-" + layer, "Filters of " + layer, filters.sizes().slice(1).vec(), pictures);
}

void write_all_filters(const fs::path& run, const Experiment& experiment, const Network& network) {
  for (std::size_t i = 0; i < network.size(); ++i) {
    const LayerSpec& spec = experiment.model.layers[i];
    if (spec.is("conv")) write_filters(run, spec.name, network.parameters(i)[0]->value);
    if (!spec.is("local_filter") || network.parameters(i)[0]->value.numel() == 0) continue;
    const Tensor weights = network.parameters(i)[0]->value.detach();  // weights of this rank's outputs
    write_filters(run, spec.name, weights.flatten(0, 2));
  }
}

void write_reconstructions(const fs::path& run, const Network& network, const Training& training, data::Loader& test,
                           bool writes) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < network.size(); ++i) {
    const Pretrainer* pretrainer = training.pretrainer(i);
    if (pretrainer == nullptr) continue;
    test.start(0);
    const auto batch = test.next();
    if (!batch) return;
    const Tensor some = batch->images.narrow(0, 0, std::min(batch->images.size(0), kReconstructions));
    const auto input = pretrainer->input_of(some);
    const Tensor before = spatial::gather(input, 0);
    const Tensor after = spatial::gather(pretrainer->reconstruction(input), 0);
    if (!writes) continue;
    std::vector<Picture> pictures;
    const std::int64_t maps = before.size(1) == 3 ? 3 : 1;
    for (std::int64_t j = 0; j < before.size(0); ++j) {
      pictures.push_back({"input " + std::to_string(j), pixels_of(before[j].narrow(0, 0, maps))});
      pictures.push_back({"reconstruction " + std::to_string(j), pixels_of(after[j].narrow(0, 0, maps))});
    }
    write_pictures(run, "reconstructions-layer" + std::to_string(i),
                   "Input and reconstruction of layer " + std::to_string(i) + ", after pre-training",
                   {maps, before.size(2), before.size(3)}, pictures);
  }
}

void write_stimuli(const fs::path& run, const Experiment& experiment, const Mesh& mesh, const Network& network,
                   const std::vector<BestUnit>& units, bool writes) {
  if (units.empty()) return;
  std::vector<std::int64_t> numbers;
  for (const BestUnit& unit : units) numbers.push_back(unit.number);
  const Tensor stimuli = optimal_stimuli(experiment, mesh, network, numbers);
  if (!writes) return;
  std::vector<Picture> pictures;
  for (std::size_t i = 0; i < units.size(); ++i) {
    pictures.push_back({std::to_string(units[i].label), pixels_of(stimuli[static_cast<std::int64_t>(i)])});
  }
  write_pictures(run, "stimuli", "Optimal stimulus of each class's best unit, after training",
                 stimuli.sizes().slice(1).vec(), pictures);
}

// Reports the mean of the areas, ignoring NaN, which marks classes without an area.
void report_mean(const std::string& name, std::vector<double> areas, const Training& training, Reporter& reporter) {
  std::erase_if(areas, [](double area) { return std::isnan(area); });
  if (areas.empty()) return;
  const double sum = std::accumulate(areas.begin(), areas.end(), 0.0);
  reporter.metric(name, sum / static_cast<double>(areas.size()), 0, training.progress().step);
}

}  // namespace

void write_run_pictures(const fs::path& run, const Experiment& experiment, const Mesh& mesh, const Network& network,
                        data::Loader& train, Reporter& reporter) {
  const bool writes = mesh.world()->rank() == 0;
  if (writes) write_all_filters(run, experiment, network);
  const Pretraining& wanted = experiment.model.pretraining;
  if (!wanted.spot_check && !wanted.visualize) return;
  const auto units = spot_check(experiment, mesh, network, train);
  for (const BestUnit& unit : units) {
    char line[96];
    std::snprintf(line, sizeof line, "class %ld: best unit %ld, AUC %.4f", static_cast<long>(unit.label),
                  static_cast<long>(unit.number), unit.auc);
    reporter.print(line);
  }
  if (wanted.visualize) write_stimuli(run, experiment, mesh, network, units, writes);
}

void write_pretraining_pictures(const fs::path& run, const Experiment& experiment, const Mesh& mesh,
                                const Network& network, const Training& training, data::Loader& train,
                                data::Loader& test, Reporter& reporter) {
  const Pretraining& wanted = experiment.model.pretraining;
  if (wanted.visualize) write_reconstructions(run, network, training, test, mesh.world()->rank() == 0);
  if (!wanted.spot_check) return;
  const auto units = spot_check(experiment, mesh, network, train);
  const auto on_test = areas_of(mesh, network, units, test);
  std::vector<double> on_train;
  for (std::size_t i = 0; i < units.size(); ++i) {
    char line[128];
    char of_test[32] = "-";
    if (!std::isnan(on_test[i])) std::snprintf(of_test, sizeof of_test, "%.4f", on_test[i]);
    std::snprintf(line, sizeof line, "pretrained, class %ld: best unit %ld, AUC %.4f, on test images %s",
                  static_cast<long>(units[i].label), static_cast<long>(units[i].number), units[i].auc, of_test);
    reporter.print(line);
    on_train.push_back(units[i].auc);
  }
  report_mean("pretrained/train_auc", on_train, training, reporter);
  report_mean("pretrained/test_auc", on_test, training, reporter);
}

}  // namespace weft::experiment
