#include "weft/collective/autograd/node.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>

#include "weft/collective/autograd/call.h"
#include "weft/mpi/error.h"
#include "weft/mpi/options.h"
#include "weft/mpi/waiter.h"

namespace weft::collective {
namespace {

// Starts the adjoint of `record`, and of the operations before it, as long as their gradients are known. All operations
// after `record` must have started theirs. The order is that of the starts, which is the same on all ranks.
void start_adjoints_from(std::shared_ptr<Record> record, int task) {
  for (; record; record = record->previous.lock()) {
    if (record->waits) continue;
    if (!record->start_adjoint || !record->start_adjoint(task)) return;
    record->task = task;
  }
}

// The next operation on the tape that communicates in backward; null at the end.
std::shared_ptr<Record> successor(const Record& record) {
  auto next = record.next.lock();
  while (next && next->waits) next = next->next.lock();
  return next;
}

thread_local std::int64_t t_informed = mpi::kNoCommunicator;

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

at::Tensor TensorSpec::zeros() const { return at::zeros_symint(sizes, options); }

mpi::Direction current_direction() noexcept { return t_direction; }

void note_informed(const Communicator& communicator) noexcept { t_informed = communicator.id(); }

std::int64_t take_informed() noexcept { return std::exchange(t_informed, mpi::kNoCommunicator); }

OperationNode::OperationNode(const char* name, std::shared_ptr<Communicator> communicator, std::weak_ptr<Tape> tape)
    : record_(std::make_shared<Record>()), tape_(std::move(tape)) {
  record_->name = name;
  record_->communicator = std::move(communicator);
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

// Without a tape, or if the tape was reset between the start and wait(), nothing orders the adjoint relative to others
// before backward reaches the start.
void OperationNode::start_adjoint_in_order(const std::shared_ptr<Record>& start) const {
  if (record_->region == 0 || record_->region != start->region) return;
  const auto next = successor(*start);
  if (!next || next->task == record_->task) start_adjoints_from(start, record_->task);
}

// Throws an error that names the operation if this backward pass would skip communication.
void OperationNode::check_order(int task) {
  const auto later = record_->next.lock();
  TORCH_CHECK(
      !later || later->task == task, "weft: this backward pass does not reach ", later->describe(),
      ", which other ranks may wait for. Call weft.backward(loss) instead of loss.backward(), or attach it with ",
      "weft.anchor(loss); use weft.tape() for independent losses.");
  TORCH_CHECK(!has_predecessor_ || task_should_compute_output(token_index_),
              "weft: this backward pass computes only some gradients and would skip communication before ",
              record_->describe(), ", which other ranks may wait for. Use weft.grad instead of torch.autograd.grad.");
}

variable_list OperationNode::apply(variable_list&& gradients) {
  const mpi::OperationScope operation(record_->name, record_->communicator.get());
  const BackwardScope backward;
  try {
    const int task = torch::autograd::get_current_graph_task_id();
    if (has_token_) check_order(task);
    record_->task = task;
    if (const auto tape = tape_.lock(); tape && !torch::autograd::get_current_graph_task_keep_graph()) {
      tape->reset_after(*record_);
    }
    gradients.resize(outputs_.size());  // drops the gradient of the token, which is always undefined
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) gradients[i] = outputs_[i].zeros();
    }
    variable_list result = call_adjoint(std::move(gradients));
    result.resize(num_outputs());  // the gradient of the token is undefined
    for (std::size_t i = 0; i < result.size(); ++i) {
      if (!next_edge(i).is_valid()) result[i] = at::Tensor();
    }
    return result;
  } catch (...) {
    handle_failure();
    throw;
  }
}

// Selects the tape for the operations that adjoint() records for higher derivatives. Adjoints of operations without a
// tape have none either. Autograd runs the nodes of a device in its own thread, whose tape no backward pass uses: they
// record to the tape of the thread that called the operation, which waits for the backward pass.
variable_list OperationNode::call_adjoint(variable_list&& gradients) {
  std::optional<TapeScope> scope;
  const auto tape = tape_.lock();
  if (!has_token_ || (!tape && thread_ != std::this_thread::get_id())) {
    scope.emplace(false);
  } else if (thread_ != std::this_thread::get_id()) {
    scope.emplace(tape);
  }
  variable_list result = adjoint(std::move(gradients));
  if (!record_->waits) start_adjoints_from(record_->previous.lock(), record_->task);
  return result;
}

// The ranks fail at different operations of a backward pass, so all of them discard their tapes.
void OperationNode::handle_failure() noexcept {
  if (const auto tape = tape_.lock()) tape->reset();
  try {
    throw;
  } catch (const mpi::SharedFailure&) {
    if (record_->communicator && t_informed == mpi::kNoCommunicator) note_informed(*record_->communicator);
  } catch (const std::exception& error) {
    abandon(message_of(error), t_informed);
  } catch (...) {
    abandon("unknown exception", t_informed);
  }
}

void OperationNode::abandon(const std::string& cause, std::int64_t informed) noexcept {
  if (const auto tape = tape_.lock()) tape->reset();
  const auto& communicator = record_->communicator;
  if (communicator && communicator->id() != informed) communicator->raise_alarm(cause, informed);
}

}  // namespace weft::collective
