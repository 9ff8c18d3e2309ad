#include "weft/collective/node.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>

#include "weft/mpi/error.h"
#include "weft/mpi/options.h"
#include "weft/mpi/waiter.h"

namespace weft::collective {
namespace {

thread_local mpi::Direction t_direction = mpi::Direction::kForward;

class BackwardScope {
 public:
  BackwardScope() : before_(std::exchange(t_direction, mpi::Direction::kBackward)) {}
  ~BackwardScope() { t_direction = before_; }
  BackwardScope(const BackwardScope&) = delete;
  BackwardScope& operator=(const BackwardScope&) = delete;

 private:
  mpi::Direction before_;
};

}  // namespace

at::Tensor Blank::zeros() const { return at::zeros_symint(sizes, options); }

mpi::Direction current_direction() noexcept { return t_direction; }

OperationNode::OperationNode(const char* name, std::shared_ptr<mpi::Team> team, std::weak_ptr<Tape> tape)
    : record_(std::make_shared<Record>()), tape_(std::move(tape)) {
  record_->name = name;
  record_->team = std::move(team);
  if (mpi::options().debug) record_->site = mpi::call_site();
}

void OperationNode::connect(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> outputs,
                            const c10::intrusive_ptr<Node>& self) {
  torch::autograd::edge_list edges;
  edges.reserve(inputs.size() + 1);
  for (const auto& input : inputs) {
    edges.push_back(input.defined() ? torch::autograd::impl::gradient_edge(input) : torch::autograd::Edge());
  }
  const auto tape = tape_.lock();
  if (tape) {
    has_token_ = true;
    thread_ = tape->thread();
    token_index_ = edges.size();
    has_predecessor_ = !tape->empty();
    edges.push_back(tape->token());
  }
  set_next_edges(std::move(edges));
  outputs_.reserve(outputs.size());
  for (const auto& output : outputs) {
    outputs_.emplace_back(output);
    torch::autograd::set_history(output, self);
  }
  if (tape) tape->append(*this, {self, add_input_metadata(Node::undefined_input())});
}

// What contract 5 promises where a backward pass would leave communication out: an error that names it.
void OperationNode::check_order(int task) {
  const auto later = record_->next.lock();
  TORCH_CHECK(!later || later->task == task, "weft: this backward pass does not reach ", later->describe(),
              ", which other ranks may wait for. Call weft.backward(loss) instead of loss.backward(), or join it with ",
              "weft.anchor(loss); weft.tape() gives independent losses tapes of their own.");
  TORCH_CHECK(!has_predecessor_ || task_should_compute_output(token_index_),
              "weft: this backward pass computes only some gradients and would skip communication before ",
              record_->describe(), ", which other ranks may wait for. Use weft.grad instead of torch.autograd.grad.");
}

variable_list OperationNode::apply(variable_list&& gradients) {
  const mpi::OperationScope operation(record_->name, record_->team.get());
  const BackwardScope backward;
  try {
    const int task = torch::autograd::get_current_graph_task_id();
    if (has_token_) check_order(task);
    record_->task = task;
    if (const auto tape = tape_.lock(); tape && !torch::autograd::get_current_graph_task_keep_graph()) {
      tape->reset_after(*record_);
    }
    gradients.resize(outputs_.size());  // drops the token's, which is always undefined
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) gradients[i] = outputs_[i].zeros();
    }
    variable_list result = record_onward(std::move(gradients));
    result.resize(num_outputs());  // undefined for the token
    for (std::size_t i = 0; i < result.size(); ++i) {
      if (!next_edge(i).is_valid()) result[i] = at::Tensor();
    }
    return result;
  } catch (...) {
    abandon();
    throw;
  }
}

// Puts what adjoint() records, for further derivatives, where it belongs. What was recorded off the tape stays off it.
// The nodes of a device run in a thread of autograd's own, whose tape nobody would ever perform: they use that of their
// operations' thread, which waits for the backward pass.
variable_list OperationNode::record_onward(variable_list&& gradients) {
  std::optional<TapeScope> scope;
  const auto tape = tape_.lock();
  if (!has_token_ || (!tape && thread_ != std::this_thread::get_id())) {
    scope.emplace(false);
  } else if (thread_ != std::this_thread::get_id()) {
    scope.emplace(tape);
  }
  return adjoint(std::move(gradients));
}

// Ranks fail at different places of a backward pass: all forget what they recorded, so that they start anew alike.
void OperationNode::abandon() noexcept {
  if (const auto tape = tape_.lock()) tape->reset();
  try {
    throw;
  } catch (const mpi::SharedFailure&) {
  } catch (const std::exception& error) {
    if (record_->team) record_->team->raise_alarm(error.what());
  } catch (...) {
    if (record_->team) record_->team->raise_alarm("an exception that says nothing about itself");
  }
}

}  // namespace weft::collective
