// Trains a network of 64 residual layers on MNIST. The ranks share the layers and evaluate them concurrently.
//
//   mpirun -n 2 layer_parallel_mnist [--steps 64] [--levels 2] ...
//
// Multigrid over the layers solves forward and backward. A few iterations leave a small residual, which does not affect
// training. With --levels 1 the layers run sequentially, without residual and without speedup.
// examples/python/layer_parallel_mnist.py is the same program and prints the same losses.
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "weft/data/batches.h"
#include "weft/data/mnist.h"
#include "weft/layer_parallel/compose.h"
#include "weft/layer_parallel/network.h"
#include "weft/weft.h"

namespace {

using weft::data::LabelledImages;
using weft::layer_parallel::LayerParallel;

constexpr std::int64_t kChannels = 4;
constexpr std::int64_t kSide = 28;
constexpr std::int64_t kClasses = 10;

// The command line options, as --name value.
using Settings = std::map<std::string, double>;

Settings parse(int argc, char** argv) {
  Settings settings{{"--steps", 64}, {"--levels", 2}, {"--cfactor", 4},   {"--iterations", 2}, {"--epochs", 2},
                    {"--batch", 50}, {"--seed", 1},   {"--images", 4000}, {"--rate", 0.05}};
  for (int i = 1; i < argc; i += 2) {
    const auto setting = settings.find(argv[i]);
    char* end = nullptr;
    const double value = i + 1 < argc ? std::strtod(argv[i + 1], &end) : 0;
    if (setting == settings.end() || end == nullptr || *end != '\0' || value <= 0) {
      std::string names;
      for (const auto& [name, preset] : settings) names.append(" ").append(name);
      throw std::invalid_argument("expected options" + names + ", each with a number greater than 0, got " + argv[i] +
                                  " " + (i + 1 < argc ? argv[i + 1] : "without a number"));
    }
    setting->second = value;
  }
  return settings;
}

// The residual: the step is x + dt * layer(x).
struct LayerImpl : torch::nn::Module {
  torch::nn::Conv2d conv =
      register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(kChannels, kChannels, 3).padding(1)));
  torch::Tensor forward(const torch::Tensor& x) { return torch::relu(conv->forward(x)); }
};
TORCH_MODULE(Layer);

std::vector<weft::layer_parallel::Layer> make_layers(int count) {
  std::vector<weft::layer_parallel::Layer> layers;
  for (int i = 0; i < count; ++i) layers.push_back(weft::layer_parallel::layer(Layer()));
  return layers;
}

weft::layer_parallel::Options solver(Settings& settings) {
  weft::layer_parallel::Options options;
  options.forward_grid = options.backward_grid = {.levels = static_cast<int>(settings["--levels"]),
                                                  .coarsening = static_cast<std::int64_t>(settings["--cfactor"])};
  for (auto* solve : {&options.forward, &options.backward}) {
    solve->max_iterations = static_cast<int>(settings["--iterations"]);
    solve->skip_downcycle = true;
    solve->relative_tolerance = 1e-6;
    solve->relaxations = weft::multigrid::PerLevel<int>(1, {{0, 0}});
  }
  return options;
}

// Opening and closing layers on rank 0, and between them the layers that all ranks share.
class Network {
 public:
  Network(const weft::CommunicatorPtr& comm, Settings& settings)
      : comm_(comm),
        opening_(torch::nn::Conv2dOptions(1, kChannels, 3).padding(1)),
        middle_(comm, make_layers(static_cast<int>(settings["--steps"])), solver(settings)),
        closing_(kChannels * kSide * kSide, kClasses) {}

  // The parameters that this rank trains.
  [[nodiscard]] std::vector<torch::Tensor> parameters() const {
    auto all = middle_.parameters();
    if (comm_->rank() != 0) return all;
    for (const auto& end : {opening_->parameters(), closing_->parameters()})
      all.insert(all.end(), end.begin(), end.end());
    return all;
  }

  // Returns the scores on rank 0; a zero for backward on other ranks.
  torch::Tensor operator()(const torch::Tensor& images) {
    const auto open = [&](const torch::Tensor& x) { return torch::relu(opening_->forward(x)); };
    const auto close = [&](const torch::Tensor& x) { return closing_->forward(x.flatten(1)); };
    const torch::Tensor x = compose(open, weft::data::unit_floats(images));
    return compose(close, middle_.forward(x));
  }

  template <class Function>
  torch::Tensor compose(Function&& function, const torch::Tensor& x) {
    return weft::layer_parallel::compose(*comm_, std::forward<Function>(function), x);
  }

  // The last residuals of the forward and backward solve; "none" with one level.
  [[nodiscard]] std::string residuals() const {
    std::string text;
    for (const auto* solve : {&middle_.statistics().forward, &middle_.statistics().backward}) {
      char number[32] = "none";
      if (!solve->residuals.empty() && solve->residuals.back()) {
        std::snprintf(number, sizeof number, "%.1e", *solve->residuals.back());
      }
      text.append(text.empty() ? "" : " ").append(number);
    }
    return text;
  }

 private:
  weft::CommunicatorPtr comm_;
  torch::nn::Conv2d opening_;
  LayerParallel middle_;
  torch::nn::Linear closing_;
};

// Returns the mean loss on rank 0.
double train(Network& network, torch::optim::Optimizer& optimizer, const LabelledImages& images,
             const std::vector<torch::Tensor>& batches) {
  double total = 0;
  for (const auto& numbers : batches) {
    const LabelledImages batch = images.select(numbers);
    optimizer.zero_grad();
    const torch::Tensor loss = network.compose(
        [&](const torch::Tensor& scores) { return torch::nn::functional::cross_entropy(scores, batch.labels); },
        network(batch.images));
    weft::backward(loss);
    optimizer.step();
    total += loss.item<double>();
  }
  return total / static_cast<double>(batches.size());
}

// Returns the accuracy on rank 0.
double accuracy(Network& network, const LabelledImages& test, std::int64_t batch) {
  const torch::NoGradGuard no_grad;
  std::int64_t right = 0;
  for (const auto& numbers : torch::arange(test.size()).split(batch)) {
    const LabelledImages some = test.select(numbers);
    const torch::Tensor scores = network(some.images);
    if (scores.dim() == 2) right += scores.argmax(1).eq(some.labels).sum().item<std::int64_t>();
  }
  return static_cast<double>(right) / static_cast<double>(test.size());
}

void run(const weft::CommunicatorPtr& comm, Settings settings) {
  const weft::data::Mnist data = weft::data::mnist();
  const auto count = std::min(static_cast<std::int64_t>(settings["--images"]), data.train.size());
  // Select images spread evenly over the set.
  const auto chosen = data.train.select(torch::linspace(0, data.train.size() - 1, count).to(torch::kLong));
  torch::manual_seed(static_cast<std::uint64_t>(settings["--seed"]));  // all ranks draw the same weights
  Network network(comm, settings);
  torch::optim::SGD optimizer(network.parameters(), torch::optim::SGDOptions(settings["--rate"]).momentum(0.9));
  const weft::data::BatchOptions shuffling{.size = static_cast<std::int64_t>(settings["--batch"]),
                                           .seed = static_cast<std::uint64_t>(settings["--seed"])};
  const bool first = comm->rank() == 0;
  if (first) std::printf("%d layers on %d ranks, %ld images\n", int(settings["--steps"]), comm->size(), long(count));
  for (int epoch = 0; epoch < settings["--epochs"]; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    const double loss = train(network, optimizer, chosen, weft::data::shuffled_batches(count, epoch, shuffling));
    const std::string left = network.residuals();
    const double recognised = accuracy(network, data.test, shuffling.size);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (!first) continue;
    std::printf("epoch %d: loss %.6f, test accuracy %.3f, residuals forward and backward %s, %.1f s\n", epoch + 1, loss,
                recognised, left.c_str(), seconds.count());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const weft::mpi::Environment environment(&argc, &argv);
  torch::set_num_threads(1);
  try {
    run(weft::world(), parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "layer_parallel_mnist: %s\n", error.what());
    // Do not return: MPI_Finalize would wait for ranks that wait for this one. The launcher terminates them.
    std::_Exit(EXIT_FAILURE);
  }
  return 0;
}
