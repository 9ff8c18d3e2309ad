// What the tests of training share: experiments as text, run on all ranks or by one.
#pragma once

#include <string>
#include <vector>

#include "weft/experiment/dataset.h"
#include "weft/experiment/description.h"
#include "weft/experiment/evaluation.h"
#include "weft/experiment/load.h"
#include "weft/experiment/training.h"
#include "weft/weft.h"

namespace weft::experiment {

// Small pictures that need no files; `rest` is split and model of weft's own form.
inline Experiment toy(const std::string& rest, const std::string& shape = "[11, 9]") {
  return parse_experiment(
      "seed: 3\ndtype: float64\ndata: {set: blobs, images: 40, shape: " + shape + ", classes: 3, maps: 2}\n" + rest,
      "toy.yaml");
}

inline Comm alone() {
  static const Comm team = mpi::Team::adopt(world()->origin().split(world()->rank(), 0));
  return team;
}

// An experiment that is being trained.
struct Trial {
  Experiment experiment;
  Mesh mesh;
  Network network;
  Dataset dataset;
  Training training;

  Trial(const Experiment& given, const Comm& comm)
      : experiment(given),
        mesh(comm, plan_ranks(given, comm->size())),
        network(experiment, mesh),
        dataset(open_dataset(experiment, mesh.plan(), comm->rank(), [](const std::string&) {})),
        training(experiment, mesh, network, *dataset.train) {}

  // The cost of each step.
  std::vector<double> finish() {
    std::vector<double> costs;
    while (!training.done()) costs.push_back(training.step(false).cost);
    return costs;
  }
};

}  // namespace weft::experiment
