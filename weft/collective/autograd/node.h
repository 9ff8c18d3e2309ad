// The autograd node of a communicating operation, and record(), which attaches one to the results of an operation.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <memory>
#include <utility>
#include <vector>

#include "weft/collective/autograd/tape.h"
#include "weft/mpi/communicator.h"

namespace weft::collective {

using torch::autograd::variable_list;

// Sizes and options of a tensor, to create zeros like it without keeping it alive.
struct TensorSpec {
  TensorSpec() = default;
  explicit TensorSpec(const at::Tensor& like) : sizes(like.sym_sizes().vec()), options(like.options()) {}
  TensorSpec(at::IntArrayRef shape, at::TensorOptions how)
      : sizes(shape.begin(), shape.end()), options(std::move(how)) {}
  [[nodiscard]] at::Tensor zeros() const;

  std::vector<c10::SymInt> sizes;
  at::TensorOptions options;
};

// Returns kBackward while the calling thread runs an adjoint, whose messages use the backward channels.
[[nodiscard]] mpi::Direction current_direction() noexcept;

// A backward pass of this thread fails, and all ranks of `communicator` know it. The ranks of other communicators may
// wait for operations that the pass does not reach. Exceptions that pass through Python, for example a vmap rule, lose
// their type, so a variable carries the communicator to the end of the pass.
void note_informed(const Communicator& communicator) noexcept;
// Returns the id of that communicator, or kNoCommunicator, and clears the variable.
[[nodiscard]] std::int64_t take_informed() noexcept;

class OperationNode : public torch::autograd::Node {
 public:
  OperationNode(const char* name, std::shared_ptr<Communicator> communicator, std::weak_ptr<Tape> tape);

  // Checks the order, replaces undefined gradients by zeros, and calls adjoint(), which communicates on the backward
  // channels. An exception raises an alarm on the other ranks.
  variable_list apply(variable_list&& gradients) final;

  [[nodiscard]] std::string name() const override { return std::string("weft::") + record_->name + "Backward"; }
  [[nodiscard]] const std::shared_ptr<Record>& record() const noexcept { return record_; }
  [[nodiscard]] const std::shared_ptr<Communicator>& communicator() const noexcept { return record_->communicator; }

  // For the node of a wait(), whose operation was started by `start`: starts the adjoint of that operation, and of
  // earlier ones that waited for it, unless an operation that was started later comes first.
  void start_adjoint_in_order(const std::shared_ptr<Record>& start) const;

  // Raises an alarm on the ranks that wait for this operation in a backward pass that failed, unless they are those of
  // the communicator `informed`, and resets the tape.
  void abandon(const std::string& cause, std::int64_t informed) noexcept;

  // Replaces the edge to the predecessor.
  void set_token(torch::autograd::Edge token) { next_edges_[token_index_] = std::move(token); }

  // Connects the node with its inputs and outputs and appends it to the tape. Inputs may be undefined.
  void connect(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> outputs, const c10::intrusive_ptr<Node>& self);

 protected:
  // Maps the gradients of the outputs, all defined, to gradients of the inputs, in the order given to connect().
  virtual variable_list adjoint(variable_list&& gradients) = 0;

 private:
  void check_order(int task);
  void handle_failure() noexcept;
  variable_list call_adjoint(variable_list&& gradients);

  std::shared_ptr<Record> record_;
  std::weak_ptr<Tape> tape_;
  std::vector<TensorSpec> outputs_;
  std::size_t token_index_ = 0;  // index in the next edges
  bool has_token_ = false;
  std::thread::id thread_;  // the thread of the tape
  bool has_predecessor_ = false;
};

// Calls adjoint(node, gradients), and adjoint.release(), if it exists, to free saved tensors.
template <class Adjoint>
class OperationNodeWith final : public OperationNode {
 public:
  template <class... Arguments>
  explicit OperationNodeWith(Adjoint adjoint, Arguments&&... arguments)
      : OperationNode(std::forward<Arguments>(arguments)...), adjoint_(std::move(adjoint)) {}

  void release_variables() override {
    if constexpr (requires { adjoint_.release(); }) adjoint_.release();
  }

  Adjoint adjoint_;

 protected:
  variable_list adjoint(variable_list&& gradients) override { return adjoint_(*this, std::move(gradients)); }
};

// Makes `outputs` depend on `inputs` through `adjoint`. The current tape orders the operation unless `tape` is false.
// Returns the node, for adjoints that save an output.
template <class Adjoint>
c10::intrusive_ptr<OperationNodeWith<Adjoint>> record(const char* name, std::shared_ptr<Communicator> communicator,
                                                      at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> outputs,
                                                      Adjoint adjoint, bool tape = true) {
  std::weak_ptr<Tape> on;
  if (tape && Tape::current().on()) on = Tape::current().weak_from_this();
  auto node = c10::make_intrusive<OperationNodeWith<Adjoint>>(std::move(adjoint), name, std::move(communicator), on);
  node->connect(inputs, outputs, node);
  return node;
}

}  // namespace weft::collective
