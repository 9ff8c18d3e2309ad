#include "weft/time_parallel/sequence_multigrid.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <numeric>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "weft/multigrid/local_transport.h"
#include "weft/multigrid/mpi_transport.h"

namespace weft::time_parallel {

using at::Tensor;
using multigrid::Packed;
using multigrid::Place;
using multigrid::PlannedStep;
using multigrid::State;

namespace {

std::int64_t total_of(const std::vector<std::int64_t>& steps) {
  return std::accumulate(steps.begin(), steps.end(), std::int64_t{0});
}

// A rank owns the states after its steps; the first rank also owns the initial state.
std::vector<std::int64_t> forward_offsets(const std::vector<std::int64_t>& steps) {
  std::vector<std::int64_t> offsets{0};
  std::int64_t end = 0;
  for (const std::int64_t count : steps) offsets.push_back((end += count) + 1);
  return offsets;
}

// A rank owns the gradients of the states before its steps. The last rank that has steps also owns that of the final
// state, which is point 0. The offsets list the ranks in reverse order.
std::vector<std::int64_t> adjoint_offsets(const std::vector<std::int64_t>& steps) {
  const std::int64_t total = total_of(steps);
  std::vector<std::int64_t> offsets;
  std::int64_t end = total;
  for (auto count = steps.rbegin(); count != steps.rend(); end -= *count++) {
    offsets.push_back(end == total ? 0 : total - end + 1);
  }
  offsets.push_back(total + 1);
  return offsets;
}

multigrid::TimeHierarchy hierarchy(const std::vector<std::int64_t>& steps, multigrid::HierarchyOptions grid,
                                   TimeOrder order) {
  const std::int64_t total = total_of(steps);
  grid.offsets = order == TimeOrder::kForward ? forward_offsets(steps) : adjoint_offsets(steps);
  grid.t_end = static_cast<double>(total);
  return {total, static_cast<int>(steps.size()), grid};
}

std::shared_ptr<multigrid::Transport> transport(std::shared_ptr<Communicator> communicator) {
  if (communicator == nullptr) return std::make_shared<multigrid::LocalTransport>();
  return std::make_shared<multigrid::MpiTransport>(std::move(communicator));
}

// States are tensors of one shape and type.
class RecurrenceProblem final : public multigrid::Problem {
 public:
  RecurrenceProblem(Tensor initial, std::int64_t total, TimeOrder order, SequenceMultigrid::StepFunction step)
      : initial_(initial.contiguous()), total_(total), order_(order), step_(std::move(step)) {}

  State initial() override { return State::of(initial_); }

  State step(const State& u, const multigrid::Step& step) override {
    const auto found = prepared_.find(step.index);
    if (found != prepared_.end()) {
      const auto& [planned, next] = found->second;
      if (planned.u.shared() == u.shared() && planned.step.level == step.level && planned.step.final == step.final) {
        return State::of(next);
      }
    }
    const PlannedStep single{u, step};
    return State::of(take({&single, 1})[0]);
  }

  bool prepares_steps() const override { return true; }

  void prepare(std::span<const PlannedStep> steps) override {
    prepared_.clear();
    const Tensor next = take(steps);
    for (std::size_t k = 0; k < steps.size(); ++k) {
      prepared_.emplace(steps[k].step.index, Prepared{steps[k], next[static_cast<std::int64_t>(k)]});
    }
  }

  State combine(double a, State x, double b, State y) override {
    return State::of(at::add(a == 1 ? x.as<Tensor>() : x.as<Tensor>() * a, y.as<Tensor>(), b));
  }
  double norm(const State& u) override {
    return at::linalg_vector_norm(u.as<Tensor>(), 2, std::nullopt, false).item<double>();
  }
  bool finite(const State& u) override { return at::isfinite(u.as<Tensor>()).all().item<bool>(); }
  State zero(const Place& /*place*/) override { return State::of(at::zeros_like(initial_)); }

  Packed pack(const State& u, const Place& /*place*/) override {
    const auto& value = u.as<Tensor>();
    return {{static_cast<const std::byte*>(value.const_data_ptr()), value.nbytes()}, u.shared()};
  }
  State unpack(Packed message, const Place& /*place*/) override {
    if (message.bytes.empty()) return State::of(at::empty_like(initial_));
    // The state is immutable and the only owner of the message's memory, so it can use that memory.
    auto* memory = const_cast<std::byte*>(message.bytes.data());  // NOLINT
    return State::of(at::from_blob(memory, initial_.sizes(), [owner = message.owner](void*) {}, initial_.options()));
  }
  std::optional<std::int64_t> packed_bytes(const Place& /*place*/) override {
    return static_cast<std::int64_t>(initial_.nbytes());
  }

 private:
  struct Prepared {
    PlannedStep planned;
    Tensor next;
  };

  // Takes steps of one level, which stand for equally many fine steps.
  Tensor take(std::span<const PlannedStep> planned) {
    const multigrid::Step& one = planned[0].step;
    SequenceMultigrid::Steps steps{{}, one.fine_stop - one.fine_start, one.final};
    std::vector<Tensor> states;
    for (const auto& [u, step] : planned) {
      states.push_back(u.as<Tensor>());
      steps.first.push_back(order_ == TimeOrder::kForward ? step.fine_start : total_ - step.fine_stop);
    }
    const Tensor before = states.size() == 1 ? states[0].unsqueeze(0) : at::stack(states);
    const Tensor next = step_(before, steps);
    TORCH_CHECK_VALUE(next.sizes() == before.sizes() && next.scalar_type() == before.scalar_type(),
                      "expected states of shape ", before.sizes(), " and type ", before.scalar_type(), ", got ",
                      next.sizes(), " and ", next.scalar_type());
    return next.contiguous();
  }

  std::unordered_map<std::int64_t, Prepared> prepared_;  // by Step::index
  Tensor initial_;
  std::int64_t total_;
  TimeOrder order_;
  SequenceMultigrid::StepFunction step_;
};

}  // namespace

SequenceMultigrid::SequenceMultigrid(std::shared_ptr<Communicator> communicator, const std::vector<std::int64_t>& steps,
                                     multigrid::HierarchyOptions grid, TimeOrder order)
    : total_(total_of(steps)),
      order_(order),
      solver_(hierarchy(steps, std::move(grid), order), transport(std::move(communicator))) {}

multigrid::Statistics SequenceMultigrid::solve(const Tensor& initial, StepFunction step,
                                               const multigrid::Options& options) {
  RecurrenceProblem problem(initial, total_, order_, std::move(step));
  multigrid::Statistics statistics = solver_.solve(problem, options);
  solver_.release();
  return statistics;
}

}  // namespace weft::time_parallel
