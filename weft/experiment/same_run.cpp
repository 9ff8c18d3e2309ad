#include "weft/experiment/same_run.h"

#include <cstdio>

#include "weft/experiment/description.h"
#include "weft/experiment/problems.h"
#include "weft/experiment/training.h"

namespace weft::experiment {
namespace {

constexpr const char* kAdvice = "; name a new folder by --out, or leave it as it was";

std::string kind_of(const Stage& stage) {
  if (stage.kind == Stage::Kind::kPretrain) return "pretrain";
  return stage.kind == Stage::Kind::kLastLayer ? "last layer" : "whole";
}

std::string described(const IndexedStage& stage) {
  const std::string epochs = std::to_string(stage.epochs) + (stage.epochs == 1 ? " epoch" : " epochs");
  if (stage.kind == "pretrain") return epochs + " of pre-training layer " + std::to_string(stage.layer);
  return epochs + (stage.kind == "whole" ? " of the whole network" : " of the last layer alone");
}

// What decides which images come when.
void require_same_order(const CheckpointIndex& then, const CheckpointIndex& now) {
  for (const auto& [name, number] : now.numbers) {
    const auto found = then.numbers.find(name);
    if (found == then.numbers.end() || found->second == number) continue;
    char text[160];
    std::snprintf(text, sizeof text, "expected a %s of %.15g, with which this run was begun, got %.15g", name.c_str(),
                  found->second, number);
    throw ExperimentError(std::string(text) + kAdvice);
  }
}

void require_same_data(const CheckpointIndex& then, const CheckpointIndex& now) {
  for (const auto& [name, text] : now.data) {
    const auto found = then.data.find(name);
    if (found == then.data.end() || found->second == text) continue;
    throw ExperimentError("expected data with the " + name + " '" + found->second +
                          "', with which this run was begun, got '" + text + "'" + kAdvice);
  }
}

bool may_be(const std::vector<IndexedStage>& then, const std::vector<IndexedStage>& now, std::size_t i) {
  const bool was_last = i + 1 == then.size();
  if (i >= now.size()) return was_last;  // fewer epochs than it takes to come here
  if (then[i].kind != now[i].kind || then[i].layer != now[i].layer) return false;
  if (then[i].epochs == now[i].epochs) return true;
  // Where another stage follows by now, none of the epochs that may be done gets lost.
  return was_last && (i + 1 == now.size() || now[i].epochs > then[i].epochs);
}

void require_same_stages(const CheckpointIndex& then, const CheckpointIndex& now, const Progress& progress) {
  const auto current = static_cast<std::size_t>(progress.stage);
  for (std::size_t i = 0; i < then.stages.size() && i <= current; ++i) {
    if (may_be(then.stages, now.stages, i)) continue;
    throw ExperimentError("expected " + described(then.stages[i]) + " as stage " + std::to_string(i + 1) +
                          " of training, with which this run was begun, got " +
                          (i < now.stages.size() ? described(now.stages[i]) : "none") + kAdvice);
  }
}

}  // namespace

CheckpointIndex begun_with(const Experiment& experiment, const std::vector<Stage>& stages, std::int64_t batches) {
  CheckpointIndex facts{.experiment = experiment.name,
                        .numbers = {{"seed", static_cast<double>(experiment.seed)},
                                    {"batch_size", static_cast<double>(experiment.model.batch_size)},
                                    {"shuffle", experiment.dataset.shuffle ? 1.0 : 0.0},
                                    {"batches", static_cast<double>(batches)}}};
  for (const Stage& stage : stages) {
    facts.stages.push_back({kind_of(stage), static_cast<std::int64_t>(stage.layer), stage.epochs});
  }
  return facts;
}

Progress continued(const CheckpointIndex& then, const CheckpointIndex& now) {
  const Progress progress = progress_from(then.numbers);
  require_same_order(then, now);
  require_same_data(then, now);
  require_same_stages(then, now, progress);
  const bool finished = !then.stages.empty() && progress.stage >= static_cast<std::int64_t>(then.stages.size());
  if (!finished) return progress;
  // At the end of its last stage, which may have got more epochs.
  return {.stage = static_cast<std::int64_t>(then.stages.size()) - 1,
          .epoch = then.stages.back().epochs,
          .step = progress.step};
}

}  // namespace weft::experiment
