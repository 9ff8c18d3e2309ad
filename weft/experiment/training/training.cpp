#include "weft/experiment/training/training.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include "weft/collective/all_reduce.h"
#include "weft/collective/autograd/backward.h"
#include "weft/experiment/file/description.h"
#include "weft/experiment/training/cost.h"
#include "weft/trace/span.h"

namespace weft::experiment {

using at::Tensor;

namespace {

// The rule of the last layer, which all stages except pre-training train.
LearningRule last_rule(const ModelSpec& model) { return model.layers.back().rule.value_or(model.rule); }

}  // namespace

Training::Training(const Experiment& experiment, const Mesh& mesh, Network& network, data::Loader& images)
    : experiment_(experiment),
      mesh_(mesh),
      network_(network),
      images_(images),
      stages_(images.batches() == 0 ? std::vector<Stage>{} : stages_of(experiment.model)),
      optimizer_(network.parameters()) {
  for (const Stage& stage : stages_) {
    if (stage.kind != Stage::Kind::kPretrain) continue;
    pretrainers_.push_back(std::make_unique<Pretrainer>(network, stage.layer, mesh));
  }
}

Pretrainer* Training::pretrainer(std::size_t layer) const {
  for (const auto& candidate : pretrainers_) {
    if (candidate->layer() == layer) return candidate.get();
  }
  return nullptr;
}

std::int64_t Training::total_steps() const {
  std::int64_t epochs = 0;
  for (const Stage& stage : stages_) epochs += stage.epochs;
  return epochs * images_.batches();
}

// The order of images depends only on the epoch within the stage.
void Training::start_epoch() {
  images_.start(progress_.epoch, progress_.batch);
  epoch_started_ = true;
}

Tensor Training::outputs_of(const Stage& stage, const data::Batch& batch) const {
  const ForwardContext context{.training = true,
                               .step = static_cast<std::uint64_t>(progress_.step),
                               .first_image = batch.first,
                               .images = batch.whole_size};
  if (stage.kind == Stage::Kind::kWhole) return network_.forward(batch.images, context);
  const std::size_t last = network_.size() - 1;
  Activations x = network_.input(batch.images);
  {
    const at::NoGradGuard frozen;
    x = network_.run(x, 0, last, context);
  }
  return std::get<Tensor>(network_.run(x, last, network_.size(), context));
}

// Sums the gradients of all groups in one message. A group without images in the batch has no gradients.
void Training::sum_gradients(const Stage& stage) {
  if (mesh_.shards()->size() == 1) return;
  const at::NoGradGuard no_grad;
  const bool whole = stage.kind == Stage::Kind::kWhole;
  std::vector<Parameter*> parameters = whole ? network_.parameters() : network_.parameters(network_.size() - 1);
  std::erase_if(parameters, [](const Parameter* parameter) { return !parameter->trained; });
  std::vector<Tensor> flat;
  for (const Parameter* parameter : parameters) {
    const Tensor& gradient = parameter->value.grad();
    flat.push_back(gradient.defined() ? gradient.reshape({-1}) : at::zeros_like(parameter->value).reshape({-1}));
  }
  const Tensor sum = collective::all_reduce(at::cat(flat), mesh_.shards());
  std::int64_t first = 0;
  for (Parameter* parameter : parameters) {
    const std::int64_t count = parameter->value.numel();
    parameter->value.mutable_grad() = sum.narrow(0, first, count).view(parameter->value.sizes());
    first += count;
  }
}

Training::Outcome Training::supervised(const Stage& stage, const data::Batch& batch) {
  optimizer_.clear_gradients();
  Tensor outputs;
  CostValue cost;
  {
    const trace::Span span("experiment/forward", progress_.step);
    outputs = outputs_of(stage, batch);
    cost = cost_of(experiment_.model.cost, outputs, batch.labels, batch.whole_size);
  }
  {
    const trace::Span span("experiment/backward", progress_.step);
    collective::backward(cost.objective);
  }
  sum_gradients(stage);
  update(stage);
  return {cost.reported, mistakes(outputs.detach(), batch.labels)};
}

void Training::update(const Stage& stage) {
  const trace::Span span("experiment/update", progress_.step);
  const UpdateTime time{.epoch = stage.first_epoch + progress_.epoch,
                        .fraction = static_cast<double>(progress_.batch) / static_cast<double>(images_.batches()),
                        .epochs = experiment_.model.epochs};
  optimizer_.step(time);
  learning_rate_ = rate_at(last_rule(experiment_.model), time);
  // Do not normalize frozen filters again: that could change their last bit.
  if (stage.kind == Stage::Kind::kWhole) {
    network_.after_update();
  } else {
    network_.layer(network_.size() - 1).after_update();
  }
}

std::vector<double> Training::totals(const std::vector<double>& mine) const {
  const at::NoGradGuard no_grad;
  Tensor numbers = at::zeros({static_cast<std::int64_t>(mine.size())}, at::kDouble);
  std::copy(mine.begin(), mine.end(), numbers.mutable_data_ptr<double>());
  const Tensor sum = collective::all_reduce(numbers, mesh_.world());
  const auto* data = sum.const_data_ptr<double>();
  return {data, data + sum.numel()};
}

// The span shows in the trace whether training waits for images.
data::Batch Training::next_batch() {
  const trace::Span span("experiment/wait for images", progress_.step);
  auto batch = images_.next();
  TORCH_CHECK(batch, "weft: the loader ended before batch ", progress_.batch, " of ", images_.batches());
  return *std::move(batch);
}

StepReport Training::step(bool stop) {
  TORCH_CHECK(!done(), "weft: step() was called after the end of training");
  const Stage& stage = stages_[static_cast<std::size_t>(progress_.stage)];
  if (!epoch_started_) start_epoch();
  const auto batch = next_batch();
  const trace::Span span("experiment/step", progress_.step);
  const Outcome outcome = stage.kind == Stage::Kind::kPretrain ? Outcome{pretrainer(stage.layer)->step(batch), 0}
                                                               : supervised(stage, batch);
  // All ranks of a group have the same cost and mistakes.
  const double share = 1.0 / static_cast<double>(mesh_.world()->size() / mesh_.plan().shards);
  const auto sums = totals({outcome.cost * share, static_cast<double>(outcome.mistakes) * share, stop ? 1.0 : 0.0});
  StepReport report{
      .cost = sums[0], .images = batch.whole_size, .stopped = sums[2] > 0, .stage = &stage, .epoch = progress_.epoch};
  progress_.cost_sum += sums[0];
  progress_.mistakes += static_cast<std::int64_t>(sums[1] + 0.5);
  progress_.images += batch.whole_size;
  ++progress_.step;
  if (++progress_.batch == images_.batches()) finish_epoch(report);
  return report;
}

void Training::finish_epoch(StepReport& report) {
  report.epoch_ended = true;
  report.epoch_cost = progress_.cost_sum / static_cast<double>(images_.batches());
  report.epoch_error = static_cast<double>(progress_.mistakes) / static_cast<double>(progress_.images);
  const bool last = progress_.epoch + 1 == report.stage->epochs;
  progress_ = {
      .stage = progress_.stage + (last ? 1 : 0), .epoch = last ? 0 : progress_.epoch + 1, .step = progress_.step};
  epoch_started_ = false;
  const bool more = !done() && stages_[static_cast<std::size_t>(progress_.stage)].kind == Stage::Kind::kPretrain;
  report.pretraining_ended = report.stage->kind == Stage::Kind::kPretrain && !more;
}

std::vector<Parameter> Training::state() {
  std::vector<Parameter> all;
  for (const Parameter* parameter : network_.parameters()) all.push_back(*parameter);
  for (const auto& pretrainer : pretrainers_) {
    if (pretrainer->decoder() != nullptr) all.push_back(*pretrainer->decoder());
  }
  for (Parameter& parameter : optimizer_.state()) all.push_back(std::move(parameter));
  return all;
}

void Training::start_from_loaded_weights() {
  for (const auto& pretrainer : pretrainers_) pretrainer->copy_filter();
}

void Training::resume(const Progress& progress) {
  progress_ = progress;
  // The run was finished; continue if the file now has more epochs.
  if (done() && !stages_.empty()) {
    progress_.stage = static_cast<std::int64_t>(stages_.size()) - 1;
    progress_.epoch = progress.step / images_.batches();
    for (std::size_t i = 0; i + 1 < stages_.size(); ++i) progress_.epoch -= stages_[i].epochs;
  }
  // The file may now have fewer epochs than are finished.
  while (!done() && progress_.epoch >= stages_[static_cast<std::size_t>(progress_.stage)].epochs) {
    progress_ = {.stage = progress_.stage + 1, .step = progress_.step};
  }
  epoch_started_ = false;
}

}  // namespace weft::experiment
