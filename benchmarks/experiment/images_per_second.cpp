// Measures training steps of example experiments: images per second on one rank and on all ranks, with and without
// prefetching, and the share of time that training waits for images.
//
// mpirun -n 2 images_per_second <examples/experiments>
#include <ATen/Parallel.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/timing.h"
#include "weft/experiment/file/load.h"
#include "weft/experiment/training/dataset.h"
#include "weft/experiment/training/training.h"
#include "weft/trace/recording.h"
#include "weft/weft.h"

namespace {

using namespace weft;
using experiment::Experiment;

// An experiment that trains one step per call, without end.
struct Job {
  Experiment description;
  experiment::Mesh mesh;
  experiment::Network network;
  experiment::Dataset data;
  experiment::Training training;

  Job(const Experiment& given, const std::shared_ptr<Communicator>& communicator)
      : description(given),
        mesh(communicator, experiment::plan_ranks(given, communicator->size())),
        network(description, mesh),
        data(experiment::open_dataset(description, mesh.plan(), communicator->rank(), [](const std::string&) {})),
        training(description, mesh, network, *data.train) {}
};

Experiment from_file(const std::filesystem::path& file, std::int64_t prefetch) {
  Experiment result = experiment::load_experiment(file, {});
  result.model.epochs = 1'000'000;  // more than the benchmark needs
  result.model.pretraining.wanted = false;
  result.model.pretraining.initial_epochs = 0;
  result.dataset.sample = 1;  // long epochs
  result.dataset.prefetch = prefetch;
  return result;
}

// Returns the share of waiting in the recorded time of steps and waits for images.
double share_of_waiting() {
  double waiting = 0, working = 0;
  for (const auto& thread : trace::recorded()) {
    for (const trace::Event& event : thread.events) {
      const auto time = static_cast<double>(event.duration_ns);
      if (std::strcmp(event.name, "experiment/wait for images") == 0) waiting += time;
      if (std::strcmp(event.name, "experiment/step") == 0) working += time;
    }
  }
  return waiting / (waiting + working);
}

void step(Job& job) { static_cast<void>(job.training.step(false)); }

double percent_waiting(Job& job, int steps) {
  trace::start_recording();
  for (int i = 0; i < steps; ++i) step(job);
  trace::stop_recording();
  return 100 * share_of_waiting();
}

void measure(const std::string& name, const std::filesystem::path& file) {
  const auto world = Communicator::world();
  const auto alone = Communicator::adopt(world->origin().split(world->rank(), 0));
  const bool first = world->rank() == 0;
  // Only rank 0 trains alone; the others wait in the barrier of compare().
  const auto one = first ? std::make_unique<Job>(from_file(file, 2), alone) : nullptr;
  const auto unprepared = first ? std::make_unique<Job>(from_file(file, 0), alone) : nullptr;
  Job all(from_file(file, 2), world);
  const auto times = benchmarks::compare({{"one rank",
                                           [&] {
                                             if (one) step(*one);
                                           }},
                                          {"without prefetch",
                                           [&] {
                                             if (unprepared) step(*unprepared);
                                           }},
                                          {"all ranks", [&] { step(all); }}},
                                         8, 5, world->origin());
  const double waiting_all = percent_waiting(all, 30);
  if (!first) return;
  const double waiting = percent_waiting(*one, 30);
  const double waiting_unprepared = percent_waiting(*unprepared, 30);
  const auto rate = [&](std::size_t i) {
    return 1e6 * static_cast<double>(all.description.model.batch_size) / times[i];
  };
  const std::string ranks = std::to_string(world->size()) + " ranks";
  benchmarks::report("experiment/" + name + "/" + ranks, rate(2), "1 rank", rate(0), "images/s");
  benchmarks::report("experiment/" + name + "/1 rank", rate(0), "without prefetch", rate(1), "images/s");
  benchmarks::report("experiment/" + name + "/waiting for images, " + ranks, waiting_all, "1 rank", waiting, "%");
  benchmarks::report("experiment/" + name + "/waiting for images, 1 rank", waiting, "without prefetch",
                     waiting_unprepared, "%");
}

}  // namespace

int main(int argc, char** argv) {
  const mpi::Environment environment(&argc, &argv);
  at::set_num_threads(1);  // otherwise a single rank would use all ranks' cores
  const std::filesystem::path folder = argc > 1 ? argv[1] : "examples/experiments";
  measure("gb", folder / "mnist_distarray_gb.yaml");
  measure("convnet", folder / "mnist_distarray_convnet.yaml");
  return 0;
}
