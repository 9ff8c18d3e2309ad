// Trains a network one batch at a time. A run can stop and resume between any two batches.
#pragma once

#include <memory>
#include <vector>

#include "weft/data/loader.h"
#include "weft/experiment/layers/network.h"
#include "weft/experiment/training/optimizer.h"
#include "weft/experiment/training/pretraining.h"
#include "weft/experiment/training/progress.h"
#include "weft/experiment/training/stage.h"

namespace weft::experiment {

struct StepReport {
  double cost = 0;
  std::int64_t images = 0;  // of the batch, over all ranks
  bool epoch_ended = false;
  bool pretraining_ended = false;  // this epoch was the last one of pre-training
  bool stopped = false;            // a rank received a stop request
  double epoch_cost = 0;           // mean over the epoch; valid if epoch_ended
  double epoch_error = 0;          // training error of the epoch; valid if epoch_ended
  const Stage* stage = nullptr;    // the stage of this step
  std::int64_t epoch = 0;          // the epoch of this step, within the stage
};

class Training {
 public:
  // All arguments must outlive the training. Collective.
  Training(const Experiment& experiment, const Mesh& mesh, Network& network, data::Loader& images);

  [[nodiscard]] bool done() const { return progress_.stage >= static_cast<std::int64_t>(stages_.size()); }
  // Trains on one batch. `stop` on any rank sets StepReport::stopped on all. Collective.
  [[nodiscard]] StepReport step(bool stop);

  [[nodiscard]] const Progress& progress() const noexcept { return progress_; }
  [[nodiscard]] const std::vector<Stage>& stages() const noexcept { return stages_; }
  [[nodiscard]] std::int64_t batches() const { return images_.batches(); }
  [[nodiscard]] std::int64_t total_steps() const;
  // Returns the learning rate of the last layer in the last step.
  [[nodiscard]] double learning_rate() const noexcept { return learning_rate_; }
  // The state for checkpoints: parameters, decoders and optimizer state.
  [[nodiscard]] std::vector<Parameter> state();
  // Continues at `progress`, after state() was restored.
  void resume(const Progress& progress);
  // Initializes the decoders after only the network's parameters were restored.
  void start_from_loaded_weights();
  [[nodiscard]] Pretrainer* pretrainer(std::size_t layer) const;

 private:
  struct Outcome {
    double cost = 0;
    std::int64_t mistakes = 0;
  };

  void start_epoch();
  [[nodiscard]] data::Batch next_batch();
  [[nodiscard]] Outcome supervised(const Stage& stage, const data::Batch& batch);
  [[nodiscard]] at::Tensor outputs_of(const Stage& stage, const data::Batch& batch) const;
  void sum_gradients(const Stage& stage);
  void update(const Stage& stage);
  // Sums numbers over all ranks. Collective.
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
  double learning_rate_ = 0;
  bool epoch_started_ = false;
};

}  // namespace weft::experiment
