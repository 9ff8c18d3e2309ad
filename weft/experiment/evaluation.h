// How well the network names images that it may not have seen.
#pragma once

#include <vector>

#include "weft/data/loader.h"
#include "weft/experiment/metrics.h"
#include "weft/experiment/network.h"

namespace weft::experiment {

struct Evaluation {
  double cost = 0;
  double error = 0;  // the part of the images whose class is not the largest output
  std::int64_t images = 0;
  std::vector<std::vector<std::int64_t>> confusion{};  // [class][answer]
  MetricValues metrics{};                              // the experiment's own
};

// All images of the loader. The same on every rank. Collective.
[[nodiscard]] Evaluation evaluate(const Experiment& experiment, const Mesh& mesh, const Network& network,
                                  data::Loader& images);

}  // namespace weft::experiment
