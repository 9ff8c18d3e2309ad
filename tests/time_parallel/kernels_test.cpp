// The recurrence kernels of every instruction set that this processor supports, against torch's operations.
#include "weft/time_parallel/kernels/kernels.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/max.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "weft/time_parallel/sequence_tensor.h"

namespace weft::time_parallel {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

// Sizes below, at and above the widths of vectors and of matrix panels.
const std::vector<std::int64_t> kHidden{1, 3, 8, 17, 33, 64, 70};
constexpr std::int64_t kSteps = 5;
constexpr std::int64_t kRows = 7;

template <class T>
class KernelTest : public testing::Test {
 protected:
  static constexpr auto kType = std::is_same_v<T, double> ? at::kDouble : at::kFloat;
  static constexpr double kTolerance = std::is_same_v<T, double> ? 1e-11 : 1e-4;

  static Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, kType); }

  static void expect_close(const Tensor& found, const Tensor& expected, std::string_view set, std::int64_t hidden) {
    ASSERT_EQ(found.sizes(), expected.sizes());
    EXPECT_TRUE(at::allclose(found, expected, kTolerance, kTolerance))
        << set << ", hidden size " << hidden << ": largest difference "
        << (found - expected).abs().max().template item<double>();
  }

  // Calls body(name, kernels, hidden) for all instruction sets and sizes.
  template <class Body>
  static void for_all(const Body& body) {
    for (const auto& set : supported_instruction_sets<T>()) {
      for (const std::int64_t hidden : kHidden) body(set.name, set.kernels, hidden);
    }
  }

  static Extent extent(std::int64_t hidden, const std::vector<std::int64_t>& lengths, bool reverse) {
    Extent e;
    e.steps = kSteps;
    e.end_row = kRows;
    e.hidden = hidden;
    e.reverse = reverse;
    e.lengths = lengths.data();
    return e;
  }

  static T* data(const Tensor& x) { return x.mutable_data_ptr<T>(); }
};

using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(KernelTest, Types);

const std::vector<std::int64_t> kLengths{5, 2, 5, 0, 1, 4, 3};

// Runs a recurrence with torch's operations. Returns the first state after each step, and the final states.
template <class Step>
std::pair<Tensor, Tensors> reference(const Tensor& input, Tensors states, bool reverse, const Step& step) {
  const Tensor lengths = at::tensor(kLengths);
  Tensors outputs(kSteps);
  for (std::int64_t i = 0; i < kSteps; ++i) {
    const std::int64_t t = reverse ? kSteps - 1 - i : i;
    const Tensor active = lengths.gt(t).unsqueeze(1);
    const Tensors next = step(input[t], states);
    outputs[static_cast<std::size_t>(t)] = at::where(active, next[0], at::zeros_like(next[0]));
    for (std::size_t k = 0; k < states.size(); ++k) states[k] = at::where(active, next[k], states[k]);
  }
  return {at::stack(outputs), states};
}

Tensors gru_step(const Tensor& x, const Tensor& h, const Tensor& weight, const Tensor& bias, double implicit_step) {
  const auto a = x.chunk(3, 1);
  const auto b = at::addmm(bias, h, weight.t()).chunk(3, 1);
  const Tensor z = (a[1] + b[1]).sigmoid();
  const Tensor n = (a[2] + (a[0] + b[0]).sigmoid() * b[2]).tanh();
  const Tensor kept = implicit_step == 0 ? z : 1 / (1 + implicit_step * (1 - z));
  return {n + kept * (h - n)};
}

Tensors lstm_step(const Tensor& x, const Tensors& state, const Tensor& weight, const Tensor& bias) {
  const auto gates = (x + at::addmm(bias, state[0], weight.t())).chunk(4, 1);
  const Tensor c = gates[1].sigmoid() * state[1] + gates[0].sigmoid() * gates[2].tanh();
  return {gates[3].sigmoid() * c.tanh(), c};
}

TYPED_TEST(KernelTest, GruForwardAndBackward) {
  using T = TypeParam;
  for (const bool reverse : {false, true}) {
    this->for_all([&](std::string_view set, const Kernels<T>& kernels, std::int64_t hidden) {
      for (const double implicit_step : {0.0, 0.5}) {
        const Tensor input = this->random({kSteps, kRows, 3 * hidden}).requires_grad_();
        const Tensor initial = this->random({kRows, hidden}).requires_grad_();
        const Tensor weight = this->random({3 * hidden, hidden}) / 4;
        const Tensor bias = this->random({3 * hidden});
        const auto [expected, states] = reference(input, {initial}, reverse, [&](const Tensor& x, const Tensors& s) {
          return gru_step(x, s[0], weight, bias, implicit_step);
        });
        const Tensor grad = this->random({kSteps, kRows, hidden});
        const auto grads =
            torch::autograd::grad({expected, states[0]}, {input, initial}, {grad, at::ones_like(states[0])});

        const Tensor output = at::empty_like(expected), final_state = at::empty_like(initial);
        const Tensor gates = at::zeros({kSteps, kRows, 4 * hidden}, output.options());
        GruForward<T> forward;
        forward.extent = this->extent(hidden, kLengths, reverse);
        forward.input = read<T>(input);
        forward.initial = pointer<T>(initial);
        forward.weight = pointer<T>(weight);
        forward.bias = pointer<T>(bias);
        forward.implicit_step = static_cast<T>(implicit_step);
        forward.output = write<T>(output);
        forward.final_state = this->data(final_state);
        forward.gates = write<T>(gates);
        kernels.gru_forward(forward);
        this->expect_close(output, expected, set, hidden);
        this->expect_close(final_state, states[0], set, hidden);

        const Tensor grad_input = at::empty_like(input), grad_initial = at::empty_like(initial);
        const Tensor candidate = at::empty_like(output), previous = at::empty_like(output);
        const Tensor ones = at::ones_like(final_state);
        GruBackward<T> backward;
        backward.extent = forward.extent;
        backward.grad_output = read<T>(grad);
        backward.grad_final = pointer<T>(ones);
        backward.gates = read<T>(gates);
        backward.output = read<T>(output);
        backward.initial = pointer<T>(initial);
        backward.weight = pointer<T>(weight);
        backward.implicit_step = forward.implicit_step;
        backward.grad_input = write<T>(grad_input);
        backward.grad_candidate = write<T>(candidate);
        backward.previous = write<T>(previous);
        backward.grad_initial = this->data(grad_initial);
        kernels.gru_backward(backward);
        this->expect_close(grad_input, grads[0], set, hidden);
        this->expect_close(grad_initial, grads[1], set, hidden);
      }
    });
  }
}

TYPED_TEST(KernelTest, LstmForwardAndBackward) {
  using T = TypeParam;
  this->for_all([&](std::string_view set, const Kernels<T>& kernels, std::int64_t hidden) {
    const Tensor input = this->random({kSteps, kRows, 4 * hidden}).requires_grad_();
    const Tensor initial = this->random({kRows, hidden}).requires_grad_();
    const Tensor cell = this->random({kRows, hidden}).requires_grad_();
    const Tensor weight = this->random({4 * hidden, hidden}) / 4;
    const Tensor bias = this->random({4 * hidden});
    const auto [expected, states] = reference(input, {initial, cell}, false, [&](const Tensor& x, const Tensors& s) {
      return lstm_step(x, s, weight, bias);
    });
    const Tensor grad = this->random({kSteps, kRows, hidden});
    const auto grads = torch::autograd::grad({expected}, {input, initial, cell}, {grad});

    const Tensor output = at::empty_like(expected), final_state = at::empty_like(initial);
    const Tensor final_cell = at::empty_like(cell);
    const Tensor gates = at::zeros({kSteps, kRows, 5 * hidden}, output.options());
    LstmForward<T> forward;
    forward.extent = this->extent(hidden, kLengths, false);
    forward.projected = hidden;
    forward.input = read<T>(input);
    forward.initial = pointer<T>(initial);
    forward.initial_cell = pointer<T>(cell);
    forward.weight = pointer<T>(weight);
    forward.bias = pointer<T>(bias);
    forward.output = write<T>(output);
    forward.final_state = this->data(final_state);
    forward.final_cell = this->data(final_cell);
    forward.gates = write<T>(gates);
    kernels.lstm_forward(forward);
    this->expect_close(output, expected, set, hidden);
    this->expect_close(final_cell, states[1], set, hidden);

    const Tensor grad_input = at::empty_like(input), previous = at::empty_like(output);
    const Tensor grad_initial = at::empty_like(initial), grad_cell = at::empty_like(cell);
    LstmBackward<T> backward;
    backward.extent = forward.extent;
    backward.projected = hidden;
    backward.grad_output = read<T>(grad);
    backward.gates = read<T>(gates);
    backward.output = read<T>(output);
    backward.initial = pointer<T>(initial);
    backward.initial_cell = pointer<T>(cell);
    backward.weight = pointer<T>(weight);
    backward.grad_input = write<T>(grad_input);
    backward.previous = write<T>(previous);
    backward.grad_initial = this->data(grad_initial);
    backward.grad_initial_cell = this->data(grad_cell);
    kernels.lstm_backward(backward);
    this->expect_close(grad_input, grads[0], set, hidden);
    this->expect_close(grad_initial, grads[1], set, hidden);
    this->expect_close(grad_cell, grads[2], set, hidden);
  });
}

// The diagonals of the blocks of a Jacobian [rows, outputs, inputs], one unit at a time, by autograd.
Tensor block_diagonals(const Tensors& after, const Tensors& before, std::int64_t hidden) {
  Tensors blocks;
  for (const Tensor& output : after) {
    for (const Tensor& input : before) {
      const Tensor block = at::zeros_like(input);
      for (std::int64_t j = 0; j < hidden; ++j) {
        const auto grad = torch::autograd::grad({output.select(1, j).sum()}, {input}, {}, /*retain_graph=*/true,
                                                /*create_graph=*/false, /*allow_unused=*/true);
        if (grad[0].defined()) block.select(1, j).copy_(grad[0].select(1, j));
      }
      blocks.push_back(block);
    }
  }
  return at::stack(blocks, 1).detach();
}

TYPED_TEST(KernelTest, GruAndLstmLinearize) {
  using T = TypeParam;
  constexpr std::int64_t kMany = 50;  // more than a block of rows
  this->for_all([&](std::string_view set, const Kernels<T>& kernels, std::int64_t hidden) {
    const Tensor h = this->random({kMany, hidden}).requires_grad_();
    const Tensor c = this->random({kMany, hidden}).requires_grad_();
    const Tensor weight = this->random({4 * hidden, hidden}) / 4;
    const Tensor bias = this->random({4 * hidden});
    const Tensor input = this->random({kMany, 4 * hidden});
    const Tensor gru_input = input.narrow(1, 0, 3 * hidden).contiguous();
    const Tensor gru_weight = weight.narrow(0, 0, 3 * hidden), gru_bias = bias.narrow(0, 0, 3 * hidden);
    const Tensors gru = gru_step(gru_input, h, gru_weight, gru_bias, 0);
    const Tensor next = at::empty_like(h), diagonal = at::empty_like(h);
    GruLinearize<T> call;
    call.end_row = kMany;
    call.hidden = hidden;
    call.input = pointer<T>(gru_input);
    call.before = pointer<T>(h);
    call.weight = pointer<T>(gru_weight);
    call.bias = pointer<T>(gru_bias);
    call.next = this->data(next);
    call.diagonal = this->data(diagonal);
    kernels.gru_linearize(call);
    this->expect_close(next, gru[0], set, hidden);
    this->expect_close(diagonal.unsqueeze(1), block_diagonals(gru, {h}, hidden), set, hidden);

    const Tensors lstm = lstm_step(input, {h, c}, weight, bias);
    const Tensor both = at::cat({h, c}, 1).detach();
    const Tensor after = at::empty_like(both), diagonals = at::zeros({kMany, 4, hidden}, both.options());
    LstmLinearize<T> other;
    other.end_row = kMany;
    other.hidden = hidden;
    other.input = pointer<T>(input);
    other.before = pointer<T>(both);
    other.weight = pointer<T>(weight);
    other.bias = pointer<T>(bias);
    other.next = this->data(after);
    other.diagonals = this->data(diagonals);
    kernels.lstm_linearize(other);
    this->expect_close(after, at::cat({lstm[0], lstm[1]}, 1), set, hidden);
    this->expect_close(diagonals, block_diagonals(lstm, {h, c}, hidden), set, hidden);
  });
}

Tensors para_step(const Tensor& input, const Tensors& s, const Tensor& a) {
  const auto x = (input + a.narrow(0, a.size(0) - 3, 3).flatten()).chunk(3, 1);
  if (s.size() == 1) {
    const Tensor z = (x[0] + a[0] * s[0]).sigmoid();
    const Tensor n = (x[2] + a[2] * (x[1] + a[1] * s[0]).sigmoid() * s[0]).tanh();
    return {s[0] + z * (n - s[0])};
  }
  const Tensor f = (x[0] + a[0] * s[0] + a[3] * s[1]).sigmoid();
  const Tensor c = f * s[1] + (1 - f) * (x[2] + a[2] * s[0]).tanh();
  return {(x[1] + a[1] * s[0] + a[4] * c).sigmoid() * c.tanh(), c};
}

TYPED_TEST(KernelTest, ParaGruAndParaLstm) {
  using T = TypeParam;
  for (const std::int64_t states : {1, 2}) {
    this->for_all([&](std::string_view set, const Kernels<T>& all, std::int64_t hidden) {
      const DiagonalKernels<T>& kernels = states == 1 ? all.para_gru : all.para_lstm;
      const DiagonalShape shape = states == 1 ? kParaGru : kParaLstm;
      const Tensor input = this->random({kSteps, kRows, 3 * hidden}).requires_grad_();
      const Tensor initial = this->random({kRows, states * hidden}).requires_grad_();
      const Tensor weight = this->random({shape.weights, hidden}).requires_grad_();
      const auto [expected, finals] =
          reference(input, initial.chunk(states, 1), true,
                    [&](const Tensor& x, const Tensors& s) { return para_step(x, s, weight); });
      const Tensor grad = this->random({kSteps, kRows, hidden});
      const auto grads = torch::autograd::grad({expected}, {input, initial, weight}, {grad});

      const Tensor output = at::empty_like(expected), final_state = at::empty_like(initial);
      const Tensor carried = at::zeros({kSteps, kRows, (states - 1) * hidden}, output.options());
      DiagonalForward<T> forward;
      forward.extent = this->extent(hidden, kLengths, true);
      forward.input = read<T>(input);
      forward.initial = pointer<T>(initial);
      forward.weight = pointer<T>(weight);
      forward.output = write<T>(output);
      forward.final_state = this->data(final_state);
      forward.carried = write<T>(carried);
      kernels.forward(forward);
      this->expect_close(output, expected, set, hidden);
      this->expect_close(final_state, at::cat(finals, 1), set, hidden);

      const Tensor grad_input = at::empty_like(input), grad_initial = at::empty_like(initial);
      const Tensor grad_weight = at::zeros_like(weight);
      DiagonalBackward<T> backward;
      backward.extent = forward.extent;
      backward.grad_output = read<T>(grad);
      backward.output = read<T>(output);
      backward.carried = read<T>(carried);
      backward.initial = pointer<T>(initial);
      backward.input = read<T>(input);
      backward.weight = pointer<T>(weight);
      backward.grad_input = write<T>(grad_input);
      backward.grad_initial = this->data(grad_initial);
      backward.grad_weight = this->data(grad_weight);
      kernels.backward(backward);
      this->expect_close(grad_input, grads[0], set, hidden);
      this->expect_close(grad_initial, grads[1], set, hidden);
      this->expect_close(grad_weight, grads[2], set, hidden);
    });
  }
}

// A matrix of blocks as a dense one: [batch, blocks, blocks, lanes] becomes [batch, blocks * lanes, blocks * lanes].
Tensor dense(const Tensor& blocks) {
  const std::int64_t n = blocks.size(1) * blocks.size(3);
  return blocks.diag_embed().permute({0, 1, 3, 2, 4}).reshape({blocks.size(0), n, n});
}

// Linearises each step at the given states by autograd, and solves the linear recurrence step by step.
TYPED_TEST(KernelTest, NewtonSweep) {
  using T = TypeParam;
  constexpr std::int64_t kMany = 37;  // more than two blocks of steps
  const std::vector<std::int64_t> lengths{37, 2, 16, 0, 17, 33, 36};
  for (const std::int64_t states : {1, 2}) {
    this->for_all([&](std::string_view set, const Kernels<T>& all, std::int64_t hidden) {
      const DiagonalKernels<T>& kernels = states == 1 ? all.para_gru : all.para_lstm;
      const DiagonalShape shape = states == 1 ? kParaGru : kParaLstm;
      const std::int64_t size = states * hidden;
      const bool reverse = hidden % 2 == 0, summary = hidden != 17;
      const double scale = hidden == 8 ? 0.5 : 1;
      const Tensor input = this->random({kMany, kRows, 3 * hidden});
      const Tensor weight = this->random({shape.weights, hidden});
      const Tensor before = this->random({kMany + 1, kRows, size});

      const Tensor rows = before.narrow(0, 0, kMany).reshape({kMany * kRows, size});
      Tensors leaves;
      for (const Tensor& part : rows.chunk(states, 1)) leaves.push_back(part.clone().requires_grad_());
      const Tensors next = para_step(input.view({kMany * kRows, 3 * hidden}), leaves, weight);
      const Tensor following = at::cat(next, 1).detach().view({kMany, kRows, size});
      const Tensor exact = block_diagonals(next, leaves, hidden).view({kMany, kRows, states, states, hidden});
      const Tensor stays = at::eye(states, before.options()).unsqueeze(2).expand({states, states, hidden});
      const Tensor expected = before.clone(), jacobians = at::empty_like(exact);
      Tensor largest = at::zeros({kRows}, before.options());
      Tensor change = at::zeros({kRows, size}, before.options());
      Tensor product = at::eye(size, before.options()).expand({kRows, size, size});
      for (std::int64_t t = 0; t < kMany; ++t) {
        const Tensor active = at::tensor(lengths).gt(reverse ? kMany - 1 - t : t).unsqueeze(1);
        jacobians[t].copy_(scale * at::where(active.unsqueeze(2).unsqueeze(3), exact[t], stays));
        const Tensor residual = at::where(active, following[t], before[t]) - before[t + 1];
        largest = at::max(largest, residual.abs().amax(1));
        const Tensor matrix = dense(jacobians[t]);
        change = at::matmul(matrix, change.unsqueeze(2)).squeeze(2) + residual;
        product = at::matmul(matrix, product);
        expected[t + 1].add_(change);
      }

      const Tensor after = at::empty_like(before), jacobian = at::zeros_like(jacobians);
      const Tensor found_change = at::empty_like(change), found_largest = at::empty_like(largest);
      const Tensor found_product = at::empty_like(jacobian[0]);
      DiagonalSweep<T> sweep;
      sweep.extent = this->extent(hidden, lengths, reverse);
      sweep.extent.steps = kMany;
      sweep.input = read<T>(input);
      sweep.weight = pointer<T>(weight);
      sweep.scale = static_cast<T>(scale);
      sweep.before = read<T>(before);
      sweep.after = write<T>(after);
      sweep.change = this->data(found_change);
      sweep.largest = this->data(found_largest);
      if (summary) {
        sweep.jacobian = write<T>(jacobian);
        sweep.product = this->data(found_product);
      }
      kernels.sweep(sweep);
      this->expect_close(after, expected, set, hidden);
      this->expect_close(found_change, change, set, hidden);
      this->expect_close(found_largest, largest, set, hidden);
      if (summary) {
        this->expect_close(jacobian, jacobians, set, hidden);
        this->expect_close(dense(found_product), product, set, hidden);
      }
      input[3][0][0] = std::numeric_limits<T>::quiet_NaN();
      kernels.sweep(sweep);
      EXPECT_TRUE(std::isnan(found_largest[0].template item<T>())) << set;
    });
  }
}

TYPED_TEST(KernelTest, LinearScan) {
  using T = TypeParam;
  struct Blocks {
    std::int64_t blocks, lanes;
  };
  for (const auto& set : supported_instruction_sets<T>()) {
    for (const auto& [blocks, lanes] : std::vector<Blocks>{{1, 1}, {1, 33}, {2, 19}, {3, 8}, {5, 1}, {21, 1}}) {
      for (const bool adjoint : {false, true}) {
        const std::int64_t size = blocks * lanes;
        const Tensor jacobian = this->random({kSteps, kRows, blocks, blocks, lanes}) / blocks;
        const Tensor right_hand = this->random({kSteps, kRows, size});
        const Tensor start = this->random({kRows, size});
        Tensor state = start;
        Tensor total = at::eye(size, state.options()).expand({kRows, size, size});
        const Tensor expected = at::empty_like(right_hand);
        for (std::int64_t i = 0; i < kSteps; ++i) {
          const std::int64_t t = adjoint ? kSteps - 1 - i : i;
          const Tensor matrix = adjoint ? dense(jacobian[t]).transpose(1, 2) : dense(jacobian[t]);
          const auto multiply = [&](const Tensor& x) { return at::matmul(matrix, x.unsqueeze(2)).squeeze(2); };
          if (adjoint) {
            state = state + right_hand[t];
            expected[t].copy_(state);
            state = multiply(state);
          } else {
            state = multiply(state) + right_hand[t];
            expected[t].copy_(state);
          }
          total = at::matmul(matrix, total);
        }
        const Tensor solution = at::empty_like(right_hand), end = at::empty_like(start);
        const Tensor product = at::empty_like(jacobian[0]);
        LinearScan<T> call;
        call.steps = kSteps;
        call.batch = kRows;
        call.end_row = kRows;
        call.blocks = blocks;
        call.lanes = lanes;
        call.adjoint = adjoint;
        call.jacobian = pointer<T>(jacobian);
        call.right_hand = pointer<T>(right_hand);
        call.start = pointer<T>(start);
        call.solution = this->data(solution);
        call.end = this->data(end);
        call.product = this->data(product);
        set.kernels.linear_scan(call);
        this->expect_close(solution, expected, set.name, size);
        this->expect_close(end, state, set.name, size);
        this->expect_close(dense(product), total, set.name, size);
        if (adjoint) continue;
        // Without a right-hand side, added to an array: the response to the start.
        const Tensor sum = at::ones_like(solution);
        call.right_hand = nullptr;
        call.solution = this->data(sum);
        call.add = true;
        set.kernels.linear_scan(call);
        const Tensor zero_start = at::empty_like(solution);
        call.right_hand = pointer<T>(right_hand);
        call.start = nullptr;
        call.solution = this->data(zero_start);
        call.add = false;
        set.kernels.linear_scan(call);
        this->expect_close(sum - 1, expected - zero_start, set.name, size);
      }
    }
  }
}

TEST(Processor, SelectsASupportedInstructionSet) {
  const auto sets = supported_instruction_sets<float>();
  ASSERT_FALSE(sets.empty());
  EXPECT_EQ(sets.front().name, "default");
}

}  // namespace
}  // namespace weft::time_parallel
