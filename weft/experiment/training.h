// The steps of training, one batch at a time, so that it can stop and go on between any two.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weft/data/loader.h"
#include "weft/experiment/network.h"
#include "weft/experiment/optimizer.h"
#include "weft/experiment/pretraining.h"
#include "weft/experiment/progress.h"

namespace weft::experiment {

struct ModelSpec;

// A part of training with its own epochs.
struct Stage {
  enum class Kind : std::uint8_t { kPretrain, kLastLayer, kWhole };
  Kind kind = Kind::kWhole;
  std::size_t layer = 0;  // the one that is pretrained
  std::int64_t epochs = 0;
  std::int64_t first_epoch = 0;  // of supervised training: how many went before
  std::string name{};
};

// Pre-training of each filter in turn, the last layer alone, then all; of networks without filters only the last.
[[nodiscard]] std::vector<Stage> stages_of(const ModelSpec& model);

struct StepReport {
  double cost = 0;
  bool epoch_ended = false;
  bool pretraining_ended = false;  // with this epoch, of the last filter
  bool stopped = false;            // some rank was asked to stop
  double epoch_cost = 0;           // the mean over the epoch, where it ended
  double epoch_error = 0;          // mistakes while training, likewise
  const Stage* stage = nullptr;    // the step's
  std::int64_t epoch = 0;          // the step's
};

class Training {
 public:
  // All must outlive it. Collective.
  Training(const Experiment& experiment, const Mesh& mesh, Network& network, data::Loader& images);

  [[nodiscard]] bool done() const { return progress_.stage >= static_cast<std::int64_t>(stages_.size()); }
  // One batch. `stop`: this rank was asked to stop after it, and so all do. Collective.
  [[nodiscard]] StepReport step(bool stop);

  [[nodiscard]] const Progress& progress() const noexcept { return progress_; }
  [[nodiscard]] const std::vector<Stage>& stages() const noexcept { return stages_; }
  [[nodiscard]] std::int64_t batches() const { return images_.batches(); }
  [[nodiscard]] std::int64_t total_steps() const;
  // Everything that changes, for checkpoints: parameters, decoders, the optimiser's state.
  [[nodiscard]] std::vector<Parameter> state();
  // After state() was loaded.
  void go_on(const Progress& progress);
  // After only the network's parameters were: decoders begin as their filters are.
  void begin_with_loaded_weights();
  [[nodiscard]] Pretrainer* pretrainer(std::size_t layer) const;

 private:
  struct Outcome {
    double cost = 0;
    std::int64_t mistakes = 0;
  };

  void begin_epoch();
  [[nodiscard]] data::Batch next_batch();
  [[nodiscard]] Outcome supervised(const Stage& stage, const data::Batch& batch);
  [[nodiscard]] at::Tensor outputs_of(const Stage& stage, const data::Batch& batch) const;
  void sum_gradients(const Stage& stage);
  // The numbers of all ranks: cost, mistakes, images and the wish to stop.
  [[nodiscard]] std::vector<double> totals(const std::vector<double>& mine) const;
  void finish_epoch(StepReport& report);

  const Experiment& experiment_;
  const Mesh& mesh_;
  Network& network_;
  data::Loader& images_;
  std::vector<Stage> stages_;
  std::vector<std::unique_ptr<Pretrainer>> pretrainers_;
  Optimizer optimizer_;
  Progress progress_;
  bool epoch_begun_ = false;
};

}  // namespace weft::experiment
