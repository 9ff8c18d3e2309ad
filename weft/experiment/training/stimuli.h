// Finds the best unit of each class and the image that excites it most.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/data/loader.h"
#include "weft/experiment/layers/network.h"

namespace weft::experiment {

// A unit of the last layer before the output.
struct BestUnit {
  std::int64_t label = 0;
  double auc = 0;           // area under the ROC curve of the class against the others
  std::int64_t number = 0;  // global index in [map, row, column]
};

// Returns the best unit of each class over all images of the loader. Omits classes that no image or every image has.
// The result is equal on every rank. Collective.
[[nodiscard]] std::vector<BestUnit> spot_check(const Experiment& experiment, const Mesh& mesh, const Network& network,
                                               data::Loader& images);

// Returns the area under the ROC curve of each given unit on other images, in the same order; NaN if no image or every
// image has the unit's class. Collective.
[[nodiscard]] std::vector<double> areas_of(const Mesh& mesh, const Network& network, const std::vector<BestUnit>& units,
                                           data::Loader& images);

// Returns, for each row of `values` [units, images], the probability that a value in `wanted` exceeds one of the
// others. Ties count half.
[[nodiscard]] at::Tensor area_under_curve(const at::Tensor& values, const at::Tensor& wanted);

// Returns the images of norm 1 that gradient ascent finds for some units, [units, maps, rows, columns], on the group's
// first rank; empty on the others. Collective over the group.
[[nodiscard]] at::Tensor optimal_stimuli(const Experiment& experiment, const Mesh& mesh, const Network& network,
                                         const std::vector<std::int64_t>& units);

}  // namespace weft::experiment
