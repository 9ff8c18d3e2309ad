// Evaluates a network on a set of images: cost, error, confusion matrix, metrics.
#pragma once

#include <vector>

#include "weft/data/loader.h"
#include "weft/experiment/layers/network.h"
#include "weft/experiment/training/metrics.h"

namespace weft::experiment {

struct Evaluation {
  double cost = 0;
  double error = 0;  // fraction of images whose class is not the largest output
  std::int64_t images = 0;
  std::vector<std::vector<std::int64_t>> confusion{};  // [class][predicted class]
  MetricValues metrics{};                              // values of the experiment's `metrics`
};

// Evaluates all images of the loader. The result is equal on every rank. Collective.
[[nodiscard]] Evaluation evaluate(const Experiment& experiment, const Mesh& mesh, const Network& network,
                                  data::Loader& images);

}  // namespace weft::experiment
