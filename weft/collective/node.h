// The autograd node of a communicating operation, and record(), which puts one behind an operation's results.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <memory>
#include <utility>
#include <vector>

#include "weft/collective/tape.h"
#include "weft/mpi/team.h"

namespace weft::collective {

using torch::autograd::variable_list;

// Shape and type of a tensor that is not kept, to make zeros in its place.
struct Blank {
  Blank() = default;
  explicit Blank(const at::Tensor& like) : sizes(like.sym_sizes().vec()), options(like.options()) {}
  Blank(at::IntArrayRef shape, at::TensorOptions made) : sizes(shape.begin(), shape.end()), options(std::move(made)) {}
  [[nodiscard]] at::Tensor zeros() const;

  std::vector<c10::SymInt> sizes;
  at::TensorOptions options;
};

// Whether the calling thread is inside an operation's adjoint: its traffic then takes the backward channels.
[[nodiscard]] mpi::Direction current_direction() noexcept;

class OperationNode : public torch::autograd::Node {
 public:
  OperationNode(const char* name, std::shared_ptr<mpi::Team> team, std::weak_ptr<Tape> tape);

  // Checks the order, turns absent gradients into zeros, and calls adjoint() with communication directed backward.
  // An exception reaches the other ranks as an alarm.
  variable_list apply(variable_list&& gradients) final;

  [[nodiscard]] std::string name() const override { return std::string("weft::") + record_->name + "Backward"; }
  [[nodiscard]] const std::shared_ptr<Record>& record() const noexcept { return record_; }
  [[nodiscard]] const std::shared_ptr<mpi::Team>& team() const noexcept { return record_->team; }

  // Replaces the edge to the predecessor.
  void set_token(torch::autograd::Edge token) { next_edges_[token_index_] = std::move(token); }

  // Ties the node between its inputs and outputs and puts it on the tape. Inputs that need no gradient are skipped.
  void connect(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> outputs, const c10::intrusive_ptr<Node>& self);

 protected:
  // Gradients of the outputs (never undefined) to gradients of the inputs, in the order given to connect().
  virtual variable_list adjoint(variable_list&& gradients) = 0;

 private:
  void check_order(int task);
  void abandon() noexcept;
  variable_list record_onward(variable_list&& gradients);

  std::shared_ptr<Record> record_;
  std::weak_ptr<Tape> tape_;
  std::vector<Blank> outputs_;
  std::size_t token_index_ = 0;  // among the next edges
  bool has_token_ = false;
  std::thread::id thread_;  // the tape's
  bool has_predecessor_ = false;
};

// `Adjoint` is called as adjoint(node, gradients) and, where it has saved tensors, gives them up in release().
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

// Makes `outputs` depend on `inputs` through `adjoint`, ordered by the current tape unless `tape` is false.
// Returns the node, for adjoints that save one of the outputs.
template <class Adjoint>
c10::intrusive_ptr<OperationNodeWith<Adjoint>> record(const char* name, std::shared_ptr<mpi::Team> team,
                                                      at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> outputs,
                                                      Adjoint adjoint, bool tape = true) {
  std::weak_ptr<Tape> on;
  if (tape && Tape::current().on()) on = Tape::current().weak_from_this();
  auto node = c10::make_intrusive<OperationNodeWith<Adjoint>>(std::move(adjoint), name, std::move(team), on);
  node->connect(inputs, outputs, node);
  return node;
}

}  // namespace weft::collective
