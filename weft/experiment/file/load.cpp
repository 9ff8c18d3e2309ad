#include "weft/experiment/file/load.h"

#include "weft/experiment/file/emit.h"
#include "weft/experiment/file/forms.h"
#include "weft/experiment/file/sizes.h"

namespace weft::experiment {
namespace {

// Moves the logistic function of the last layer into the cost. A saturated output would otherwise have no gradient.
void compute_cost_from_logits(ModelSpec& model) {
  if (model.cost != Cost::kBinaryCrossEntropy || model.neon_derivative) return;
  if (model.layers.back().settings->remove_logistic()) model.cost = Cost::kLogisticCrossEntropy;
}

Experiment describe(Value& root, const std::string& name, const std::vector<std::string>& overrides) {
  for (std::size_t i = 0; i < overrides.size(); ++i) {
    apply_override(root, overrides[i], static_cast<std::int64_t>(i) + 1);
  }
  Problems problems(name, overrides);
  Experiment experiment = root.tag.empty() ? read_plain_form(root, problems) : read_neon_form(root, problems);
  problems.throw_if_any();
  check_model(experiment, layer_sizes(experiment, problems), problems);
  problems.throw_if_any();
  compute_cost_from_logits(experiment.model);
  experiment.notes = problems.notes();
  experiment.file = name;
  if (experiment.name.empty()) experiment.name = std::filesystem::path(name).stem().string();
  if (!can_name_a_file(experiment.name)) {
    problems.add(experiment.place, "'" + experiment.name + "' cannot name a folder; choose another 'name'");
    problems.throw_if_any();
  }
  return experiment;
}

}  // namespace

ResolvedExperiment resolve_experiment(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  const ValuePtr root = read_document(path);
  Experiment experiment = describe(*root, path.string(), overrides);
  return {std::move(experiment), to_yaml(*root)};
}

Experiment load_experiment(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  return resolve_experiment(path, overrides).experiment;
}

Experiment parse_experiment(const std::string& text, const std::string& name,
                            const std::vector<std::string>& overrides) {
  return describe(*parse_document(text, name), name, overrides);
}

}  // namespace weft::experiment
