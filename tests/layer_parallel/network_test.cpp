// Compares LayerParallel, built from C++ modules and callables, with a loop over the same layers.
#include "weft/layer_parallel/network.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "weft/layer_parallel/compose.h"
#include "weft/weft.h"

namespace weft::layer_parallel {
namespace {

using torch::Tensor;

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::int64_t width) : linear(register_module("linear", torch::nn::Linear(width, width))) {
    to(torch::kFloat64);
  }
  Tensor forward(const Tensor& x) { return torch::tanh(linear->forward(x)); }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Block);

struct SteppedImpl : BlockImpl {
  using BlockImpl::BlockImpl;
  Tensor forward(const Tensor& x, double dt) { return x + dt * torch::sin(linear->forward(x)); }
};
TORCH_MODULE(Stepped);

Options exact(int levels) {
  Options options;
  options.tf = 1.5;
  options.forward_grid = options.backward_grid = {.levels = levels, .coarsening = 2, .min_coarse_steps = 1};
  for (auto* solve : {&options.forward, &options.backward}) {
    solve->max_iterations = 30;
    solve->absolute_tolerance = 0;
    solve->relaxations = 1;
  }
  return options;
}

Tensor weighted_sum(const Tensor& y) {
  return (y * torch::linspace(0.5, 1.5, y.numel(), y.options()).view(y.sizes())).sum();
}

class NetworkTest : public testing::TestWithParam<int> {
 protected:
  NetworkTest() { torch::manual_seed(5); }
  ~NetworkTest() override { collective::Tape::current().reset(); }

  void expect_same(const Tensor& actual, const Tensor& expected) const {
    ASSERT_TRUE(actual.defined() && expected.defined());
    EXPECT_TRUE(torch::allclose(actual, expected, 1e-11, 1e-12)) << (actual - expected).abs().max().item<double>();
  }

  const CommunicatorPtr comm_ = weft::world();
  const Tensor x_ = torch::arange(12, torch::kFloat64).view({3, 4}) / 6 - 1;
};

TEST_P(NetworkTest, ModulesMatchTheLoop) {
  constexpr int kSteps = 11;
  std::vector<Block> modules;
  std::vector<Layer> layers;
  for (int i = 0; i < kSteps; ++i) layers.push_back(layer(modules.emplace_back(4)));
  LayerParallel network(comm_, layers, exact(GetParam()));

  Tensor x = x_.clone().requires_grad_();
  const Tensor y = network.forward(x);
  weft::backward(compose(*comm_, weighted_sum, y));
  std::vector<Tensor> gradients;
  for (const auto& parameter : network.parameters()) gradients.push_back(parameter.grad().clone());
  for (auto& module : modules) module->zero_grad();

  Tensor leaf = x_.clone().requires_grad_();
  Tensor expected = leaf;
  for (auto& module : modules) expected = expected + 1.5 / kSteps * module->forward(expected);
  weighted_sum(expected).backward();
  if (comm_->rank() == 0) {
    expect_same(y, expected);
    expect_same(x.grad(), leaf.grad());
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) expect_same(gradients[i], network.parameters()[i].grad());
}

TEST_P(NetworkTest, FunctionsAndStepsCanBeCombined) {
  std::vector<Stepped> modules;
  std::vector<Layer> layers;
  const Tensor gain = torch::full({4}, 0.7, torch::kFloat64);
  for (int i = 0; i < 9; ++i) {
    layers.push_back(layer(modules.emplace_back(4), Form::kStep));
    layers.push_back({.function = [gain](const Tensors& x, double) { return Tensors{torch::cos(x[0]) * gain}; }});
  }
  LayerParallel network(comm_, layers, exact(GetParam()));
  const Tensor y = network.forward(x_);
  weft::backward(compose(*comm_, weighted_sum, y));
  Tensor expected = x_;
  for (auto& module : modules) {
    expected = module->forward(expected, 1.5 / 18);
    expected = expected + 1.5 / 18 * torch::cos(expected) * gain;
  }
  if (comm_->rank() == 0) expect_same(y, expected);
}

// The next state may reuse the memory of a layer's result only if nothing else refers to that memory.
TEST_P(NetworkTest, SharedResultsAreNotOverwritten) {
  const Tensor stored = torch::linspace(-1, 1, 12, torch::kFloat64).view({3, 4});
  const Tensor before = stored.clone();
  std::vector<Layer> layers;
  for (int i = 0; i < 4; ++i) {
    layers.push_back({.function = [](const Tensors& x, double) { return x; }});
    layers.push_back({.function = [](const Tensors& x, double) { return Tensors{x[0].view({12}).view({3, 4})}; }});
    layers.push_back({.function = [stored](const Tensors&, double) { return Tensors{stored}; }});
    layers.push_back({.function = [stored](const Tensors&, double) { return Tensors{stored.slice(0, 0, 3)}; }});
    layers.push_back({.function = [](const Tensors& x, double) { return Tensors{x[0].t().contiguous().t()}; }});
  }
  LayerParallel network(comm_, layers, exact(GetParam()));
  const Tensor x = x_.clone();
  const torch::NoGradGuard no_grad;
  const Tensor y = network.forward(x);
  Tensor expected = x_;
  const double dt = 1.5 / static_cast<double>(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    expected = expected + dt * (i % 5 == 2 || i % 5 == 3 ? before : expected);
  }
  if (comm_->rank() == 0) expect_same(y, expected);
  EXPECT_TRUE(stored.equal(before));
  EXPECT_TRUE(x.equal(x_));
}

// 32 steps on 3 levels with coarsening factor 4. The first iteration evaluates 2 steps on the coarsest level and 6 on
// the middle level. The second evaluates all 32 on the finest level. On the middle level it evaluates 2 of the 8 steps
// that the residuals need (the first iteration evaluated the others), 4 of 6 in the relaxation (the residuals evaluated
// the first step of each interval) and 2 for its residuals; on the coarsest level 1 of 4; on the way up 2 and 3. The
// last sweep evaluates 32 steps again.
TEST(CoarseSteps, AreNotEvaluatedAgainFromTheSameState) {
  const auto alone = Communicator::over(mpi::CommView(MPI_COMM_SELF), "alone");
  int evaluations = 0;
  std::vector<Layer> layers(32, {.function = [&](const Tensors& x, double) {
                              ++evaluations;
                              return Tensors{torch::sin(x[0])};
                            }});
  Options options;
  options.forward_grid = options.backward_grid = {.levels = 3, .coarsening = 4};
  options.forward.max_iterations = 2;
  options.forward.absolute_tolerance = 0;
  options.forward.skip_downcycle = true;
  LayerParallel network(alone, layers, options);
  const torch::NoGradGuard no_grad;
  static_cast<void>(network.forward(torch::ones({3}, torch::kFloat64)));
  evaluations = 0;  // the first pass determined the shapes
  static_cast<void>(network.forward(torch::ones({3}, torch::kFloat64)));
  EXPECT_EQ(evaluations, 2 + 6 + 32 + 2 + 4 + 2 + 1 + 5 + 32);
}

TEST_P(NetworkTest, ReplicatedNetworksHaveTheGradientsOfOneLoss) {
  std::vector<Block> modules;
  std::vector<Layer> layers;
  for (int i = 0; i < 7; ++i) layers.push_back(layer(modules.emplace_back(4)));
  Options options = exact(GetParam());
  options.replicated = true;
  LayerParallel network(comm_, layers, options);
  Tensor x = x_.clone().requires_grad_();
  const Tensor y = network.forward(x);
  weft::backward(weighted_sum(y));
  Tensor leaf = x_.clone().requires_grad_();
  Tensor expected = leaf;
  for (auto& module : modules) expected = expected + 1.5 / 7 * module->forward(expected);
  expect_same(y, expected);  // on every rank
  const auto gradient = torch::autograd::grad({weighted_sum(expected)}, {leaf});
  expect_same(x.grad(), gradient[0]);
}

TEST_P(NetworkTest, AllRanksNameTheFailingLayerAndTheNextPassWorks) {
  bool fail = false;
  std::vector<Layer> layers(10, Layer{.function = [](const Tensors& x, double) { return Tensors{torch::sin(x[0])}; }});
  layers[6].name = "sixth";
  layers[6].function = [&](const Tensors& x, double) {
    if (fail) throw std::runtime_error("out of order");
    return Tensors{torch::sin(x[0])};
  };
  LayerParallel network(comm_, layers, exact(GetParam()));
  const Tensor before = network.forward(x_);
  fail = network.plan().owner(6) == comm_->rank();
  if (comm_->size() == 1 && GetParam() == 1) {
    EXPECT_THROW((void)network.forward(x_), std::runtime_error);
  } else {
    try {
      (void)network.forward(x_);
      FAIL() << "no exception";
    } catch (const multigrid::SolveError& error) {
      EXPECT_EQ(error.rank(), network.plan().owner(6));
      EXPECT_THAT(error.what(), testing::HasSubstr("layer 6 (sixth): out of order"));
    }
  }
  fail = false;
  expect_same(network.forward(x_), before);
}

// Regression test: a destructor threw when it restored such buffers.
TEST_P(NetworkTest, BuffersMayBeExpandedOrResized) {
  const Tensor expanded = torch::ones({1}, torch::kFloat64).expand({4});
  std::vector<Tensor> resized;
  std::vector<Layer> layers;
  for (int i = 0; i < 8; ++i) {
    const Tensor& buffer = resized.emplace_back(torch::zeros({1}));
    layers.push_back({.function =
                          [buffer, expanded](const Tensors& x, double) {
                            buffer.resize_({buffer.numel() + 1});
                            return Tensors{torch::sin(x[0]) * expanded};
                          },
                      .buffers = {buffer, expanded}});
  }
  LayerParallel network(comm_, layers, exact(GetParam()));
  const torch::NoGradGuard no_grad;
  const Tensor y = network.forward(x_);
  Tensor expected = x_;
  for (int i = 0; i < 8; ++i) expected = expected + 1.5 / 8 * torch::sin(expected);
  if (comm_->rank() == 0) expect_same(y, expected);
  const auto own = network.plan().layers_of(comm_->rank());
  for (auto i = own.begin; i < own.end; ++i) EXPECT_EQ(resized[static_cast<std::size_t>(i)].numel(), 2);
}

TEST_P(NetworkTest, HooksOfParametersRunOnce) {
  std::vector<Block> modules;
  std::vector<Layer> layers;
  int calls = 0;
  for (int i = 0; i < 9; ++i) {
    layers.push_back(layer(modules.emplace_back(4)));
    modules.back()->linear->weight.register_hook([&calls](const Tensor& gradient) {
      ++calls;
      return 3 * gradient;
    });
  }
  LayerParallel network(comm_, layers, exact(GetParam()));
  weft::backward(compose(*comm_, weighted_sum, network.forward(x_)));
  EXPECT_EQ(calls, network.plan().layers_of(comm_->rank()).size());
}

TEST_P(NetworkTest, AllRanksThrowIfTheirNetworksDiffer) {
  if (comm_->size() == 1) GTEST_SKIP() << "requires at least two ranks";
  const auto make = [&](std::size_t count) {
    return LayerParallel(comm_, std::vector<Layer>(count, {.function = [](const Tensors& x, double) { return x; }}),
                         exact(GetParam()));
  };
  EXPECT_THROW((void)make(comm_->rank() == 0 ? 8 : 9), mpi::Disagreement);
  EXPECT_THROW((void)make(comm_->rank() == 0 ? 0 : 8), mpi::Disagreement);
  EXPECT_THROW((void)LayerParallel(comm_, 8, {}, {}, exact(GetParam())), mpi::Disagreement) << "missing layers";
  EXPECT_TRUE(torch::equal(make(8).forward(torch::zeros({2})), torch::zeros({2})));
}

// Regression test: the peers waited in an MPI call that could not be interrupted.
TEST_P(NetworkTest, AllRanksNameARankThatFailsBeforeConstruction) {
  if (comm_->size() == 1) GTEST_SKIP() << "requires at least two ranks";
  const std::vector<Layer> layers(8, {.function = [](const Tensors& x, double) { return x; }});
  if (comm_->rank() == 0) {
    comm_->raise_alarm("no images here");
  } else {
    EXPECT_THROW(LayerParallel(comm_, layers, exact(GetParam())), mpi::PeerLost);
  }
  LayerParallel network(comm_, layers, exact(GetParam()));  // the next attempt works
  EXPECT_TRUE(torch::equal(network.forward(torch::zeros({2})), torch::zeros({2})));
}

INSTANTIATE_TEST_SUITE_P(Levels, NetworkTest, testing::Values(1, 2, 3));

}  // namespace
}  // namespace weft::layer_parallel
