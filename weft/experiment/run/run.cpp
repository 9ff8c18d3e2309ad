#include "weft/experiment/run/run.h"

#include <algorithm>

#include "weft/experiment/run/checkpoint.h"
#include "weft/experiment/run/collective_input.h"
#include "weft/experiment/run/collective_work.h"
#include "weft/experiment/run/reporter.h"
#include "weft/experiment/run/resume_check.h"
#include "weft/experiment/run/resume_command.h"
#include "weft/experiment/run/run_folder.h"
#include "weft/experiment/run/run_info.h"
#include "weft/experiment/run/run_lock.h"
#include "weft/experiment/run/run_pictures.h"
#include "weft/experiment/training/dataset.h"
#include "weft/experiment/training/evaluation.h"
#include "weft/files/atomic_file.h"
#include "weft/trace/chrome_trace.h"
#include "weft/trace/recording.h"

namespace weft::experiment {
namespace {

namespace fs = std::filesystem;

// The state of one run on this rank.
class ExperimentRun {
 public:
  ExperimentRun(const RunOptions& options, const CommunicatorPtr& world)
      : options_(options),
        resolved_(resolve_on_all_ranks(options.file, options.overrides, world)),
        experiment_(resolved_.experiment),
        first_(world->rank() == 0),
        reporter_(first_, experiment_.model.metrics),
        mesh_(world, plan_ranks(experiment_, world->size())),
        dataset_(open_data()),
        network_(experiment_, mesh_),
        training_(experiment_, mesh_, network_, *dataset_.train) {}

  RunEnd run() {
    choose_folder();
    if (options_.resume) resume();
    run_on_all_ranks(mesh_.world(), "run folder", [&] {
      if (first_) write_folder();
    });
    trace::start_recording();
    const RunEnd end = train();
    trace::write_chrome_trace(folder_ / "trace.json", *mesh_.world());
    if (end == RunEnd::kFinished) finish();
    return end;
  }

 private:
  Dataset open_data() {
    Dataset dataset;
    run_on_all_ranks(mesh_.world(), "data", [&] {
      dataset = open_dataset(experiment_, mesh_.plan(), mesh_.world()->rank(),
                             [&](const std::string& line) { reporter_.print(line); });
    });
    return dataset;
  }

  void choose_folder() {
    run_on_all_ranks(mesh_.world(), "run folder", [&] {
      if (!first_) return;
      folder_ = options_.out;
      if (folder_.empty()) folder_ = (options_.resume ? last_folder : fresh_folder)("runs", experiment_.name);
      lock_ = RunLock(folder_, options_.resume);
    });
    folder_ = broadcast_text(folder_.string(), mesh_.world());
  }

  void write_folder() {
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
    write_run_info(folder_,
                   run_info(experiment_, mesh_.plan(), mesh_.world()->size(), dataset_.folder, options_.overrides));
    reporter_.open(folder_, training_.progress().step);
  }

  void resume() {
    // Rank 0 chooses, since a shared file system may show an older state to the others.
    const fs::path checkpoint = broadcast_text(latest_checkpoint(folder_).value_or("").string(), mesh_.world());
    if (checkpoint.empty()) {
      return reporter_.print("no checkpoint in " + folder_.string() + "; starting from step 0");
    }
    run_on_all_ranks(mesh_.world(), "resume", [&] {
      const CheckpointIndex index = read_index(checkpoint);
      const Progress progress = resume_point(index, facts());
      load_checkpoint(checkpoint, index, parameters_to_load(index, progress));
      if (progress.step == 0) training_.start_from_loaded_weights();
      training_.resume(progress);
    });
    reporter_.print("resuming from " + checkpoint.string());
  }

  [[nodiscard]] CheckpointIndex facts() const {
    CheckpointIndex facts = checkpoint_facts(experiment_, training_.stages(), dataset_.train->batches());
    facts.data = dataset_.description;
    return facts;
  }

  // A checkpoint of step 0 may come from another program and contain the weights only, without optimizer state.
  std::vector<Parameter> parameters_to_load(const CheckpointIndex& index, const Progress& progress) {
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
    reporter_.print("stopped after step " + std::to_string(training_.progress().step) + " of " +
                    std::to_string(training_.total_steps()) + " and saved a checkpoint; continue with: " +
                    resume_command(options_, mesh_.world()->size(), folder_));
    return RunEnd::kStopped;
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
        reporter_.print(line);
      }
    }
    write_run_pictures(folder_, experiment_, mesh_, network_, *dataset_.train, reporter_);
    reporter_.print("results are in " + folder_.string() + "; create a report with: weft report " + folder_.string());
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
  RunLock lock_;  // held by rank 0
};

}  // namespace

RunEnd run_experiment(const RunOptions& options, const CommunicatorPtr& world) {
  return ExperimentRun(options, world).run();
}

}  // namespace weft::experiment
