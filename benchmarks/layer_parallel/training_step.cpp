// Compares forward and backward of deep residual networks: a loop over the layers, and LayerParallel with one level and
// with multigrid, on one rank and on all ranks. With --pool all variants use pooled memory (weft/memory).
#include <torch/torch.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/timing.h"
#include "weft/layer_parallel/compose.h"
#include "weft/layer_parallel/network.h"
#include "weft/memory/allocator.h"
#include "weft/weft.h"

namespace {

using weft::layer_parallel::Layer;
using weft::layer_parallel::LayerParallel;
using weft::layer_parallel::Options;

struct DenseImpl : torch::nn::Module {
  DenseImpl() : linear(register_module("linear", torch::nn::Linear(64, 64))) {}
  torch::Tensor forward(const torch::Tensor& x) { return torch::tanh(linear->forward(x)); }
  torch::nn::Linear linear;
};
TORCH_MODULE(Dense);

struct ConvolutionsImpl : torch::nn::Module {
  ConvolutionsImpl() {
    const auto options = torch::nn::Conv2dOptions(4, 4, 3).padding(1);
    first = register_module("first", torch::nn::Conv2d(options));
    second = register_module("second", torch::nn::Conv2d(options));
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::relu(second->forward(torch::relu(first->forward(x)))); }
  torch::nn::Conv2d first{nullptr}, second{nullptr};
};
TORCH_MODULE(Convolutions);

Options multigrid() {
  Options options;
  options.forward_grid = options.backward_grid = {.levels = 3, .coarsening = 4};
  options.forward.max_iterations = 2;
  options.backward.max_iterations = 1;
  for (auto* solve : {&options.forward, &options.backward}) {
    solve->skip_downcycle = true;
    solve->compute_residual = false;
    solve->storage = weft::multigrid::Storage::kCPoints;
  }
  return options;
}

template <class Module>
std::vector<Layer> layers_of(std::vector<Module>& modules) {
  std::vector<Layer> layers;
  for (auto& module : modules) layers.push_back(weft::layer_parallel::layer(module));
  return layers;
}

template <class Module>
void clear_gradients(std::vector<Module>& modules) {
  for (auto& module : modules) module->zero_grad();
}

template <class Module>
void benchmark(const std::string& name, int steps, const torch::Tensor& x, const weft::CommunicatorPtr& world,
               const weft::CommunicatorPtr& alone) {
  torch::manual_seed(1);
  std::vector<Module> modules;
  for (int i = 0; i < steps; ++i) modules.emplace_back();
  const double dt = 1.0 / steps;
  LayerParallel serial(alone, layers_of(modules), {});
  LayerParallel one_rank(alone, layers_of(modules), multigrid());
  LayerParallel all_ranks(world, layers_of(modules), multigrid());

  const auto train = [&](LayerParallel& network) {
    const torch::Tensor y = network.forward(x);
    weft::backward(y.sum());
    clear_gradients(modules);
  };
  const bool first = world->rank() == 0;
  const auto on_first = [first](std::function<void()> run) {
    return [first, run = std::move(run)] {
      if (first) run();
    };
  };
  const auto times = weft::benchmarks::compare({{"plain", on_first([&] {
                                                   torch::Tensor y = x;
                                                   for (auto& module : modules) y = y + dt * module->forward(y);
                                                   y.sum().backward();
                                                   clear_gradients(modules);
                                                 })},
                                                {"serial", on_first([&] { train(serial); })},
                                                {"one rank", on_first([&] { train(one_rank); })},
                                                {"all ranks", [&] { train(all_ranks); }}},
                                               3, 11, world->origin());
  if (!first) return;
  const std::string prefix = "layer_parallel/" + name + "/" + std::to_string(steps) + "/cpp/";
  weft::benchmarks::report(prefix + "serial", times[1], "plain loop", times[0]);
  weft::benchmarks::report(prefix + "multigrid/n1", times[2], "plain loop", times[0]);
  weft::benchmarks::report(prefix + "multigrid/n" + std::to_string(world->size()), times[3], "plain loop", times[0]);
}

}  // namespace

int main(int argc, char** argv) {
  const weft::mpi::Environment environment(&argc, &argv);
  torch::set_num_threads(1);
  const bool pooled = argc > 1 && std::string_view(argv[1]) == "--pool";
  if (pooled) weft::memory::start_pooling();
  const weft::CommunicatorPtr world = weft::world();
  const auto alone = weft::Communicator::adopt(world->origin().split(world->rank(), 0));
  benchmark<Dense>("dense", 128, torch::randn({100, 64}), world, alone);
  benchmark<Dense>("dense", 512, torch::randn({100, 64}), world, alone);
  benchmark<Convolutions>("conv", 32, torch::randn({50, 4, 28, 28}), world, alone);
  return 0;
}
