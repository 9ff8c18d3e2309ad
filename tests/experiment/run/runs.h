// Helpers for tests of training: small experiments, trained on all ranks or on one.
#pragma once

#include <string>
#include <vector>

#include "weft/experiment/file/description.h"
#include "weft/experiment/file/load.h"
#include "weft/experiment/training/dataset.h"
#include "weft/experiment/training/evaluation.h"
#include "weft/experiment/training/training.h"
#include "weft/weft.h"

namespace weft::experiment {

// Returns an experiment with small synthetic images. `rest` contains `split` and `model` in the plain form.
inline Experiment toy(const std::string& rest, const std::string& shape = "[11, 9]") {
  return parse_experiment(
      "seed: 3\ndtype: float64\ndata: {set: blobs, images: 40, shape: " + shape + ", classes: 3, maps: 2}\n" + rest,
      "toy.yaml");
}

inline CommunicatorPtr alone() {
  static const CommunicatorPtr communicator = Communicator::adopt(world()->origin().split(world()->rank(), 0));
  return communicator;
}

// An experiment during training.
struct Trial {
  Experiment experiment;
  Mesh mesh;
  Network network;
  Dataset dataset;
  Training training;

  Trial(const Experiment& given, const CommunicatorPtr& comm)
      : experiment(given),
        mesh(comm, plan_ranks(given, comm->size())),
        network(experiment, mesh),
        dataset(open_dataset(experiment, mesh.plan(), comm->rank(), [](const std::string&) {})),
        training(experiment, mesh, network, *dataset.train) {}

  // Trains to the end and returns the cost of each step.
  std::vector<double> finish() {
    std::vector<double> costs;
    while (!training.done()) costs.push_back(training.step(false).cost);
    return costs;
  }
};

}  // namespace weft::experiment
