// What the units of a trained network stand for: the best one for each class, and the picture that excites it most.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/data/loader.h"
#include "weft/experiment/network.h"

namespace weft::experiment {

// A unit of the last layer before the output.
struct BestUnit {
  std::int64_t label = 0;
  double auc = 0;           // the chance that it is larger for an image of the class than for one of another
  std::int64_t number = 0;  // in the whole field: map, row, column
};

// For each class, over all images of the loader; none for a class that no image or every image is of. The same on
// every rank. Collective.
[[nodiscard]] std::vector<BestUnit> spot_check(const Experiment& experiment, const Mesh& mesh, const Network& network,
                                               data::Loader& images);

// The areas of the given units on other images than those that they were chosen by, in the units' order; NaN where no
// image or every image is of the unit's class. Collective.
[[nodiscard]] std::vector<double> areas_of(const Mesh& mesh, const Network& network, const std::vector<BestUnit>& units,
                                           data::Loader& images);

// For each row of `values` [units, images]: the chance that a value of `wanted` exceeds one of the others, ties half.
[[nodiscard]] at::Tensor area_under_curve(const at::Tensor& values, const at::Tensor& wanted);

// The image of length 1 that gradient ascent finds for a unit, whole, [maps, rows, columns]; on the group's first rank,
// elsewhere empty. Collective over the group.
[[nodiscard]] at::Tensor optimal_stimulus(const Experiment& experiment, const Mesh& mesh, const Network& network,
                                          std::int64_t unit);

}  // namespace weft::experiment
