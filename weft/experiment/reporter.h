// What a run tells while it goes on: a table and a bar on rank 0's terminal, metrics.jsonl and TensorBoard's events in
// its folder.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "weft/experiment/evaluation.h"
#include "weft/experiment/training.h"
#include "weft/trace/metrics.h"
#include "weft/trace/progress_bar.h"
#include "weft/trace/tensorboard.h"

namespace weft::experiment {

class Reporter {
 public:
  // Where `speaks` is false, on ranks but the first, it does nothing.
  explicit Reporter(bool speaks, const std::vector<Metric>& metrics = {}) : speaks_(speaks), metrics_wanted_(metrics) {}

  void say(const std::string& line);
  // From here on metrics go to the folder; those of later steps, of a run that was cut off, are forgotten.
  void open(const std::filesystem::path& run, std::int64_t step);
  void step(const StepReport& report, const Training& training);
  // `test`, where it was evaluated.
  void epoch(const StepReport& report, const Progress& progress, const std::optional<Evaluation>& test);
  void metric(const std::string& name, double value, std::int64_t epoch, std::int64_t step);

 private:
  void row(const std::string& stage, const std::vector<std::string>& cells, const std::string& seconds);

  bool speaks_;
  std::vector<Metric> metrics_wanted_;
  bool headed_ = false;
  bool diverged_ = false;
  std::unique_ptr<trace::MetricsFile> metrics_;
  std::unique_ptr<trace::TensorBoardFile> events_;
  std::unique_ptr<trace::ProgressBar> bar_;
  std::chrono::steady_clock::time_point epoch_begun_ = std::chrono::steady_clock::now();
};

}  // namespace weft::experiment
