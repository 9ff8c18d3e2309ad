#include "weft/experiment/run/run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "weft/experiment/run/checkpoint.h"
#include "weft/experiment/run/collective_input.h"
#include "weft/experiment/run/collective_work.h"
#include "weft/experiment/run/epoch_meter.h"
#include "weft/experiment/run/reporter.h"
#include "weft/experiment/run/resume_check.h"
#include "weft/experiment/run/resume_command.h"
#include "weft/experiment/run/run_folder.h"
#include "weft/experiment/run/run_info.h"
#include "weft/experiment/run/run_lock.h"
#include "weft/experiment/run/run_pictures.h"
#include "weft/experiment/run/threads.h"
#include "weft/experiment/training/dataset.h"
#include "weft/experiment/training/evaluation.h"
#include "weft/files/atomic_file.h"
#include "weft/files/error.h"
#include "weft/trace/chrome_trace.h"
#include "weft/trace/recording.h"
#include "weft/trace/span.h"

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
        threads_(set_threads(options.threads, world)),
        dataset_(open_data()),
        network_(experiment_, mesh_),
        training_(experiment_, mesh_, network_, *dataset_.train) {}

  RunEnd run() {
    for (const std::string& note : experiment_.notes) reporter_.print(note);
    for (const std::string& line : banner(experiment_, mesh_.plan(), run_facts())) reporter_.print(line);
    choose_folder();
    if (options_.resume) resume();
    run_on_all_ranks(mesh_.world(), "run folder", [&] {
      if (first_) write_folder();
    });
    trace::start_recording();
    const RunEnd end = train();
    if (end == RunEnd::kFinished) finish();
    write_trace();
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

  [[nodiscard]] RunFacts run_facts() const {
    RunFacts facts{.ranks = mesh_.world()->size(),
                   .threads = threads_,
                   .train_images = dataset_.train->part().whole.count,
                   .test_images = dataset_.test->part().whole.count,
                   .data = dataset_.folder,
                   .overrides = options_.overrides};
    for (const LayerRow& row : explain(experiment_, mesh_.plan())) facts.parameters += row.parameters;
    return facts;
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
    write_run_info(folder_, run_info(experiment_, mesh_.plan(), run_facts()));
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
    const trace::Span span("experiment/checkpoint", progress.step);
    CheckpointIndex index = facts();
    index.ranks = mesh_.world()->size();
    index.numbers.merge(numbers_of(progress));
    save_checkpoint(folder_, training_.state(), index, progress.step, mesh_);
  }

  void end_epoch(const StepReport& report) {
    training_residuals_ = network_.solver_residuals();  // the evaluation runs the solver, too
    std::optional<Evaluation> test;
    if (experiment_.predict && report.stage->kind != Stage::Kind::kPretrain) {
      test = evaluate(experiment_, mesh_, network_, *dataset_.test);
      last_test_ = {training_.progress().step, *test};
    }
    reporter_.epoch(report, training_.progress(), test);
    measure(report);
    if (report.pretraining_ended) {
      write_pretraining_pictures(folder_, experiment_, mesh_, network_, training_, *dataset_.train, *dataset_.test,
                                 reporter_);
    }
  }

  void measure(const StepReport& report) {
    const EpochMeasurements measured = meter_.finish(mesh_.world());
    const std::int64_t step = training_.progress().step;
    const std::int64_t epoch = report.stage->first_epoch + report.epoch + 1;
    reporter_.metric("speed/images per second", measured.images_per_second, epoch, step);
    if (mesh_.world()->size() > 1) reporter_.metric("speed/load imbalance", measured.load_imbalance, epoch, step);
    reporter_.metric("memory/MiB of the largest rank", measured.largest_memory_mib, epoch, step);
    if (report.stage->kind == Stage::Kind::kPretrain) return;
    reporter_.metric("train/learning rate", training_.learning_rate(), epoch, step);
    for (const auto& [layer, residuals] : training_residuals_) {
      if (residuals.forward) reporter_.metric(layer + " forward/residual", *residuals.forward, epoch, step);
      if (residuals.backward) reporter_.metric(layer + " backward/residual", *residuals.backward, epoch, step);
    }
  }

  RunEnd train() {
    const std::int64_t every = experiment_.checkpoint_steps;
    while (!training_.done()) {
      meter_.begin_step();
      const StepReport report = training_.step(stop_requested());
      meter_.end_step(report.images);
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

  // The trace is an addition to the results. A full disk must not fail a finished run.
  void write_trace() {
    try {
      trace::write_chrome_trace(folder_ / "trace.json", *mesh_.world());
    } catch (const files::FileError& error) {
      reporter_.print("the trace was not written: " + std::string(error.what()));
    }
  }

  // Prints the errors before it writes files, which fails if the disk is full.
  void finish() {
    const std::int64_t step = training_.progress().step;
    std::vector<std::pair<std::string, Evaluation>> results;
    if (experiment_.predict) {
      results.emplace_back("train", evaluate(experiment_, mesh_, network_, *dataset_.train));
      const bool tested = last_test_ && last_test_->first == step;
      results.emplace_back("test",
                           tested ? last_test_->second : evaluate(experiment_, mesh_, network_, *dataset_.test));
    }
    for (const auto& [name, result] : results) {
      char line[120];
      std::snprintf(line, sizeof line, "%s error: %.2f%% of %ld images, cost %.6g", name.c_str(), 100 * result.error,
                    static_cast<long>(result.images), result.cost);
      reporter_.print(line);
    }
    for (const auto& [name, result] : results) {
      reporter_.metric("final/" + name + "_error", result.error, experiment_.model.epochs, step);
      for (const auto& [metric, value] : result.metrics) {
        reporter_.metric("final/" + name + "_" + metric, value, experiment_.model.epochs, step);
      }
      if (first_) write_confusion(folder_, name, result.confusion);
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
  int threads_;
  Dataset dataset_;
  Network network_;
  Training training_;
  EpochMeter meter_;
  std::vector<std::pair<std::string, SolverResiduals>> training_residuals_;  // of the last step of the epoch
  std::optional<std::pair<std::int64_t, Evaluation>> last_test_;             // and its step
  fs::path folder_;
  RunLock lock_;  // held by rank 0
};

}  // namespace

RunEnd run_experiment(const RunOptions& options, const CommunicatorPtr& world) {
  return ExperimentRun(options, world).run();
}

}  // namespace weft::experiment
