// Reports the progress of a run: a table and a progress bar on rank 0's terminal, metrics.jsonl and TensorBoard events
// in the run folder.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "weft/experiment/training/evaluation.h"
#include "weft/experiment/training/training.h"
#include "weft/trace/metrics.h"
#include "weft/trace/progress_bar.h"
#include "weft/trace/tensorboard.h"

namespace weft::experiment {

class Reporter {
 public:
  // A disabled reporter does nothing. Only rank 0 has an enabled one.
  explicit Reporter(bool enabled, const std::vector<Metric>& metrics = {})
      : enabled_(enabled), metrics_wanted_(metrics) {}

  void print(const std::string& line);
  // Starts writing metrics to the folder. Removes those of steps after `step`, which an interrupted run left.
  void open(const std::filesystem::path& run, std::int64_t step);
  void step(const StepReport& report, const Training& training);
  // Reports the end of an epoch. `test` is empty if the test set was not evaluated.
  void epoch(const StepReport& report, const Progress& progress, const std::optional<Evaluation>& test);
  void metric(const std::string& name, double value, std::int64_t epoch, std::int64_t step);

 private:
  void row(const std::string& stage, const std::vector<std::string>& cells, const std::string& seconds);

  bool enabled_;
  std::vector<Metric> metrics_wanted_;
  bool header_printed_ = false;
  bool diverged_ = false;
  std::unique_ptr<trace::MetricsFile> metrics_;
  std::unique_ptr<trace::TensorBoardFile> events_;
  std::unique_ptr<trace::ProgressBar> bar_;
  std::chrono::steady_clock::time_point epoch_start_ = std::chrono::steady_clock::now();
};

}  // namespace weft::experiment
