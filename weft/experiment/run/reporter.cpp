#include "weft/experiment/run/reporter.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "weft/trace/wall_time.h"

namespace weft::experiment {
namespace {

// Returns the name of a curve: "pretrain filter1/cost", "train/epoch cost".
std::string curve(const Stage& stage, const char* what) {
  return (stage.kind == Stage::Kind::kPretrain ? stage.name : "train") + "/" + what;
}

template <class... Values>
std::string text_of(const char* format, const Values&... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string percent(double part) { return text_of("%.2f%%", 100 * part); }

}  // namespace

void Reporter::print(const std::string& line) {
  if (!enabled_) return;
  if (bar_) bar_->finish();
  bar_.reset();
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void Reporter::open(const std::filesystem::path& run, std::int64_t step) {
  if (!enabled_) return;
  const bool again = std::filesystem::exists(run / "metrics.jsonl");
  metrics_ = std::make_unique<trace::MetricsFile>(run / "metrics.jsonl");
  metrics_->remove_after(step);
  events_ = std::make_unique<trace::TensorBoardFile>(run);
  if (again || step > 0) events_->restart_at(step + 1, trace::seconds_since_1970());
  epoch_start_ = std::chrono::steady_clock::now();
}

void Reporter::metric(const std::string& name, double value, std::int64_t epoch, std::int64_t step) {
  if (!metrics_) return;
  metrics_->add({.epoch = epoch, .step = step, .name = name, .value = value});
  events_->add_scalar(name, step, static_cast<float>(value), trace::seconds_since_1970());
}

void Reporter::step(const StepReport& report, const Training& training) {
  if (!enabled_) return;
  const Stage& stage = *report.stage;
  metric(curve(stage, "cost"), report.cost, stage.first_epoch + report.epoch + 1, training.progress().step);
  if (!std::isfinite(report.cost) && !std::exchange(diverged_, true)) {
    print("step " + std::to_string(training.progress().step) +
          ": the cost is not finite: training diverged; try a smaller learning rate");
  }
  if (!bar_) {
    const std::string title = stage.name + " " + std::to_string(report.epoch + 1) + "/" + std::to_string(stage.epochs);
    bar_ = std::make_unique<trace::ProgressBar>(title, training.batches());
  }
  char text[48];
  std::snprintf(text, sizeof text, "cost %.5g", report.cost);
  bar_->update(report.epoch_ended ? training.batches() : training.progress().batch, text);
}

void Reporter::epoch(const StepReport& report, const Progress& progress, const std::optional<Evaluation>& test) {
  if (!enabled_) return;
  const Stage& stage = *report.stage;
  const std::int64_t epoch = stage.first_epoch + report.epoch + 1;
  const bool supervised = stage.kind != Stage::Kind::kPretrain;
  metric(curve(stage, "epoch cost"), report.epoch_cost, epoch, progress.step);
  if (supervised) metric("train/error", report.epoch_error, epoch, progress.step);
  if (test) {
    metric("test/error", test->error, epoch, progress.step);
    metric("test/cost", test->cost, epoch, progress.step);
    for (const auto& [name, value] : test->metrics) metric("test/" + name, value, epoch, progress.step);
  }
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - epoch_start_).count();
  epoch_start_ = now;
  if (!std::exchange(header_printed_, true)) {
    std::vector<std::string> names{"epoch", "cost", "train error", "test error"};
    for (const Metric& wanted : metrics_wanted_) names.push_back("test " + wanted.name);
    row("stage", names, "seconds");
  }
  std::vector<std::string> cells{std::to_string(epoch), text_of("%.6g", report.epoch_cost),
                                 supervised ? percent(report.epoch_error) : "-", test ? percent(test->error) : "-"};
  for (std::size_t i = 0; i < metrics_wanted_.size(); ++i) {
    const bool share = metrics_wanted_[i].largest > 0;
    const double value = test ? test->metrics[i].second : 0;
    cells.push_back(!test ? "-" : share ? percent(value) : text_of("%.4f", value));
  }
  row(stage.name, cells, text_of("%.1f", seconds));
}

void Reporter::row(const std::string& stage, const std::vector<std::string>& cells, const std::string& seconds) {
  std::string line = text_of("%-20s", stage.c_str());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const int width = i == 0 ? 6 : std::max(12, i < 4 ? 0 : static_cast<int>(metrics_wanted_[i - 4].name.size()) + 5);
    line += text_of(" %*s", width, cells[i].c_str());
  }
  print(line + text_of(" %9s", seconds.c_str()));
}

}  // namespace weft::experiment
