#include "weft/experiment/run.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string_view>

#include "weft/collective/broadcast.h"
#include "weft/experiment/checkpoint.h"
#include "weft/experiment/dataset.h"
#include "weft/experiment/evaluation.h"
#include "weft/experiment/folder_claim.h"
#include "weft/experiment/load.h"
#include "weft/experiment/reporter.h"
#include "weft/experiment/run_facts.h"
#include "weft/experiment/run_folder.h"
#include "weft/experiment/run_pictures.h"
#include "weft/experiment/same_run.h"
#include "weft/experiment/together.h"
#include "weft/files/atomic_file.h"
#include "weft/trace/chrome_trace.h"
#include "weft/trace/recording.h"

namespace weft::experiment {
namespace {

namespace fs = std::filesystem;

// The first rank's text on all ranks.
std::string announced(const std::string& text, const Comm& comm) {
  const at::NoGradGuard no_grad;
  at::Tensor length = at::empty({1}, at::kLong).fill_(static_cast<std::int64_t>(text.size()));
  length = collective::broadcast(length, comm);
  at::Tensor bytes = at::empty({length.item<std::int64_t>()}, at::kByte);
  if (comm->rank() == 0) std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  bytes = collective::broadcast(bytes, comm);
  return {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()};
}

// Collective. The same experiment on all ranks, or an error on all: a host may not see the file, or another one.
ResolvedExperiment resolved_by_all(const RunOptions& options, const Comm& world) {
  ResolvedExperiment resolved;
  std::exception_ptr error;
  std::string outcome;
  try {
    resolved = resolve_experiment(options.file, options.overrides);
    outcome = resolved.config;
  } catch (const std::exception& thrown) {
    error = std::current_exception();
    outcome = thrown.what();
  }
  if (world->size() > 1) {
    const std::uint64_t signature = std::hash<std::string_view>{}(outcome);
    world->enter();
    if (!world->agree(mpi::Direction::kForward, {.signature = signature}).same_call()) {
      world->disagree(error ? outcome
                            : "read " + options.file.string() + ", of which other ranks have another version");
    }
  }
  if (error) std::rethrow_exception(error);
  return resolved;
}

// As a shell reads it.
std::string quoted(const std::string& word) {
  const bool plain =
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%") ==
      std::string::npos;
  if (plain && !word.empty()) return word;
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

class ExperimentRun {
 public:
  ExperimentRun(const RunOptions& options, const Comm& world)
      : options_(options),
        resolved_(resolved_by_all(options, world)),
        experiment_(resolved_.experiment),
        first_(world->rank() == 0),
        reporter_(first_, experiment_.model.metrics),
        mesh_(world, plan_ranks(experiment_, world->size())),
        dataset_(opened()),
        network_(experiment_, mesh_),
        training_(experiment_, mesh_, network_, *dataset_.train) {}

  RunEnd run() {
    choose_folder();
    if (options_.resume) go_on();
    together(mesh_.world(), "run folder", [&] {
      if (first_) begin_folder();
    });
    trace::start_recording();
    const RunEnd end = train();
    trace::write_chrome_trace(folder_ / "trace.json", *mesh_.world());
    if (end == RunEnd::kFinished) finish();
    return end;
  }

 private:
  Dataset opened() {
    Dataset dataset;
    together(mesh_.world(), "data", [&] {
      dataset = open_dataset(experiment_, mesh_.plan(), mesh_.world()->rank(),
                             [&](const std::string& line) { reporter_.say(line); });
    });
    return dataset;
  }

  void choose_folder() {
    together(mesh_.world(), "run folder", [&] {
      if (!first_) return;
      folder_ = options_.out;
      if (folder_.empty()) folder_ = (options_.resume ? last_folder : fresh_folder)("runs", experiment_.name);
      claim_ = FolderClaim(folder_, options_.resume);
    });
    folder_ = announced(folder_.string(), mesh_.world());
  }

  void begin_folder() {
    fs::create_directories(folder_);
    files::write_atomically(folder_ / "config.yaml", resolved_.config);
    std::vector<Row> rows;
    for (const LayerRow& row : explain(experiment_, mesh_.plan())) {
      rows.push_back({{"layer", row.name},
                      {"kind", row.kind},
                      {"output", row.output},
                      {"tile", row.tiles},
                      {"parameters", std::to_string(row.parameters)}});
    }
    write_split(folder_, rows);
    write_facts(folder_,
                facts_of(experiment_, mesh_.plan(), mesh_.world()->size(), dataset_.folder, options_.overrides));
    reporter_.open(folder_, training_.progress().step);
  }

  void go_on() {
    // The first rank chooses: a shared file system may show the others an older state.
    const fs::path checkpoint = announced(latest_checkpoint(folder_).value_or("").string(), mesh_.world());
    if (checkpoint.empty()) {
      return reporter_.say("no checkpoint in " + folder_.string() + ": starting from the beginning");
    }
    together(mesh_.world(), "resume", [&] {
      const CheckpointIndex index = read_index(checkpoint);
      const Progress progress = continued(index, facts());
      load_checkpoint(checkpoint, index, wanted_from(index, progress));
      if (progress.step == 0) training_.begin_with_loaded_weights();
      training_.go_on(progress);
    });
    reporter_.say("going on from " + checkpoint.string());
  }

  [[nodiscard]] CheckpointIndex facts() const {
    CheckpointIndex facts = begun_with(experiment_, training_.stages(), dataset_.train->batches());
    facts.data = dataset_.description;
    return facts;
  }

  // Weights that come from elsewhere, for a run that begins with them, have no optimiser's state beside them.
  std::vector<Parameter> wanted_from(const CheckpointIndex& index, const Progress& progress) {
    std::vector<Parameter> wanted = training_.state();
    if (progress.step > 0) return wanted;
    const auto weights = network_.parameters();
    std::erase_if(wanted, [&](const Parameter& parameter) {
      const bool weight = std::any_of(weights.begin(), weights.end(),
                                      [&](const Parameter* each) { return each->name == parameter.name; });
      return !weight && !index.tensors.contains(parameter.name);
    });
    return wanted;
  }

  void checkpoint() {
    const Progress progress = training_.progress();
    CheckpointIndex index = facts();
    index.ranks = mesh_.world()->size();
    index.numbers.merge(numbers_of(progress));
    save_checkpoint(folder_, training_.state(), index, progress.step, mesh_);
  }

  void end_epoch(const StepReport& report) {
    std::optional<Evaluation> test;
    if (experiment_.predict && report.stage->kind != Stage::Kind::kPretrain) {
      test = evaluate(experiment_, mesh_, network_, *dataset_.test);
    }
    reporter_.epoch(report, training_.progress(), test);
    if (report.pretraining_ended) {
      write_pretraining_pictures(folder_, experiment_, mesh_, network_, training_, *dataset_.train, *dataset_.test,
                                 reporter_);
    }
  }

  RunEnd train() {
    const std::int64_t every = experiment_.checkpoint_steps;
    while (!training_.done()) {
      const StepReport report = training_.step(stop_requested());
      reporter_.step(report, training_);
      if (report.epoch_ended) end_epoch(report);
      const bool due = every > 0 && training_.progress().step % every == 0;
      if (report.epoch_ended || report.stopped || due) checkpoint();
      if (report.stopped && !training_.done()) return stopped();
    }
    return RunEnd::kFinished;
  }

  RunEnd stopped() {
    reporter_.say("stopped after step " + std::to_string(training_.progress().step) + " of " +
                  std::to_string(training_.total_steps()) + ", with a checkpoint; go on by: " + command_to_go_on());
    return RunEnd::kStopped;
  }

  [[nodiscard]] std::string command_to_go_on() const {
    std::string command = "weft train --resume";
    if (mesh_.world()->size() > 1) command += " -n " + std::to_string(mesh_.world()->size());
    for (const std::string& assignment : options_.overrides) command += " --set " + quoted(assignment);
    return command + " --out " + quoted(folder_.string()) + " " + quoted(options_.file.string());
  }

  void finish() {
    const std::int64_t step = training_.progress().step;
    if (experiment_.predict) {
      for (const auto& [name, images] : {std::pair{"train", dataset_.train.get()}, {"test", dataset_.test.get()}}) {
        const Evaluation result = evaluate(experiment_, mesh_, network_, *images);
        reporter_.metric(std::string("final/") + name + "_error", result.error, experiment_.model.epochs, step);
        for (const auto& [metric, value] : result.metrics) {
          reporter_.metric(std::string("final/") + name + "_" + metric, value, experiment_.model.epochs, step);
        }
        if (first_) write_confusion(folder_, name, result.confusion);
        char line[120];
        std::snprintf(line, sizeof line, "%s error: %.2f%% of %ld images, cost %.6g", name, 100 * result.error,
                      static_cast<long>(result.images), result.cost);
        reporter_.say(line);
      }
    }
    write_run_pictures(folder_, experiment_, mesh_, network_, *dataset_.train, reporter_);
    reporter_.say("written to " + folder_.string() + "; a page of it: weft report " + folder_.string());
  }

  RunOptions options_;
  ResolvedExperiment resolved_;
  const Experiment& experiment_;
  bool first_;
  Reporter reporter_;
  Mesh mesh_;
  Dataset dataset_;
  Network network_;
  Training training_;
  fs::path folder_;
  FolderClaim claim_;  // the first rank's
};

}  // namespace

RunEnd run_experiment(const RunOptions& options, const Comm& world) { return ExperimentRun(options, world).run(); }

}  // namespace weft::experiment
