#include "weft/experiment/reporter.h"

#include <cmath>
#include <cstdio>
#include <utility>

#include "weft/trace/wall_time.h"

namespace weft::experiment {
namespace {

// "pretrain filter1" and the others, as names of curves: of each batch, and of each epoch.
std::string curve(const Stage& stage, const char* what) {
  return (stage.kind == Stage::Kind::kPretrain ? stage.name : "train") + "/" + what;
}

std::string percent(double part) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f%%", 100 * part);
  return text;
}

}  // namespace

void Reporter::say(const std::string& line) {
  if (!speaks_) return;
  if (bar_) bar_->finish();
  bar_.reset();
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void Reporter::open(const std::filesystem::path& run, std::int64_t step) {
  if (!speaks_) return;
  const bool again = std::filesystem::exists(run / "metrics.jsonl");
  metrics_ = std::make_unique<trace::MetricsFile>(run / "metrics.jsonl");
  metrics_->forget_after(step);
  events_ = std::make_unique<trace::TensorBoardFile>(run);
  if (again || step > 0) events_->forget_from(step + 1, trace::seconds_since_1970());
  epoch_begun_ = std::chrono::steady_clock::now();
}

void Reporter::metric(const std::string& name, double value, std::int64_t epoch, std::int64_t step) {
  if (!metrics_) return;
  metrics_->add({.epoch = epoch, .step = step, .name = name, .value = value});
  events_->add_scalar(name, step, static_cast<float>(value), trace::seconds_since_1970());
}

void Reporter::step(const StepReport& report, const Training& training) {
  if (!speaks_) return;
  const Stage& stage = *report.stage;
  metric(curve(stage, "cost"), report.cost, stage.first_epoch + report.epoch + 1, training.progress().step);
  if (!std::isfinite(report.cost) && !std::exchange(diverged_, true)) {
    say("step " + std::to_string(training.progress().step) + ": the cost is no longer a finite number; the training " +
        "diverged, and a smaller learning rate may help");
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
  if (!speaks_) return;
  const Stage& stage = *report.stage;
  const std::int64_t epoch = stage.first_epoch + report.epoch + 1;
  const bool supervised = stage.kind != Stage::Kind::kPretrain;
  metric(curve(stage, "epoch cost"), report.epoch_cost, epoch, progress.step);
  if (supervised) metric("train/error", report.epoch_error, epoch, progress.step);
  if (test) {
    metric("test/error", test->error, epoch, progress.step);
    metric("test/cost", test->cost, epoch, progress.step);
  }
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - epoch_begun_).count();
  epoch_begun_ = now;
  char line[160];
  if (!std::exchange(headed_, true)) {
    std::snprintf(line, sizeof line, "%-20s %6s %12s %12s %12s %9s", "stage", "epoch", "cost", "train error",
                  "test error", "seconds");
    say(line);
  }
  std::snprintf(line, sizeof line, "%-20s %6ld %12.6g %12s %12s %9.1f", stage.name.c_str(), static_cast<long>(epoch),
                report.epoch_cost, supervised ? percent(report.epoch_error).c_str() : "-",
                test ? percent(test->error).c_str() : "-", seconds);
  say(line);
}

}  // namespace weft::experiment
