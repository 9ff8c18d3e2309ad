#include "weft/experiment/run/resume_check.h"

#include <cstdio>

#include "weft/experiment/file/description.h"
#include "weft/experiment/file/problems.h"

namespace weft::experiment {
namespace {

constexpr const char* kAdvice = "; restore the value, or start a new run with --out";

std::string kind_of(const Stage& stage) {
  if (stage.kind == Stage::Kind::kPretrain) return "pretrain";
  return stage.kind == Stage::Kind::kLastLayer ? "last layer" : "whole";
}

std::string stage_text(const IndexedStage& stage) {
  const std::string epochs = std::to_string(stage.epochs) + (stage.epochs == 1 ? " epoch" : " epochs");
  if (stage.kind == "pretrain") return epochs + " of pre-training layer " + std::to_string(stage.layer);
  return epochs + (stage.kind == "whole" ? " of the whole network" : " of the last layer alone");
}

// Compares the numbers that determine the order of images.
void require_same_order(const CheckpointIndex& then, const CheckpointIndex& now) {
  for (const auto& [name, number] : now.numbers) {
    const auto found = then.numbers.find(name);
    if (found == then.numbers.end() || found->second == number) continue;
    char text[160];
    std::snprintf(text, sizeof text, "weft: cannot resume: %s is %.15g, but the run started with %.15g", name.c_str(),
                  number, found->second);
    throw ExperimentError(std::string(text) + kAdvice);
  }
}

void require_same_data(const CheckpointIndex& then, const CheckpointIndex& now) {
  for (const auto& [name, text] : now.data) {
    const auto found = then.data.find(name);
    if (found == then.data.end() || found->second == text) continue;
    throw ExperimentError("weft: cannot resume: the data " + name + " is '" + text + "', but the run started with '" +
                          found->second + "'" + kAdvice);
  }
}

bool compatible(const std::vector<IndexedStage>& then, const std::vector<IndexedStage>& now, std::size_t i) {
  const bool was_last = i + 1 == then.size();
  if (i >= now.size()) return was_last;  // the file now ends before stage i: the run is finished
  if (then[i].kind != now[i].kind || then[i].layer != now[i].layer) return false;
  if (then[i].epochs == now[i].epochs) return true;
  // If another stage follows now, no finished epoch may be dropped.
  return was_last && (i + 1 == now.size() || now[i].epochs > then[i].epochs);
}

void require_same_stages(const CheckpointIndex& then, const CheckpointIndex& now, const Progress& progress) {
  const auto current = static_cast<std::size_t>(progress.stage);
  for (std::size_t i = 0; i < then.stages.size() && i <= current; ++i) {
    if (compatible(then.stages, now.stages, i)) continue;
    throw ExperimentError("weft: cannot resume: stage " + std::to_string(i + 1) + " of training is " +
                          (i < now.stages.size() ? stage_text(now.stages[i]) : "missing") +
                          ", but the run started with " + stage_text(then.stages[i]) + kAdvice);
  }
}

}  // namespace

CheckpointIndex checkpoint_facts(const Experiment& experiment, const std::vector<Stage>& stages, std::int64_t batches) {
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

Progress resume_point(const CheckpointIndex& then, const CheckpointIndex& now) {
  const Progress progress = progress_from(then.numbers);
  require_same_order(then, now);
  require_same_data(then, now);
  require_same_stages(then, now, progress);
  const bool finished = !then.stages.empty() && progress.stage >= static_cast<std::int64_t>(then.stages.size());
  if (!finished) return progress;
  // Resumes at the end of the last stage, which may have more epochs now.
  return {.stage = static_cast<std::int64_t>(then.stages.size()) - 1,
          .epoch = then.stages.back().epochs,
          .step = progress.step};
}

}  // namespace weft::experiment
