// What goes into each layer and comes out of it, from the images on; and whether that is what the file says.
#pragma once

#include <vector>

#include "weft/experiment/layer_spec.h"
#include "weft/experiment/problems.h"

namespace weft::experiment {

struct DatasetSpec;
struct Experiment;

// A field of `maps` channels, or (shape empty) a vector of `maps` values.
struct Extent {
  std::int64_t maps = 0;
  Sizes shape{};
  bool flat = false;  // a field that counts as a vector of all its values
  bool operator==(const Extent&) const = default;
  [[nodiscard]] std::int64_t values() const;
  [[nodiscard]] std::string describe() const;
};

struct LayerSizes {
  Extent in;
  Extent out;
  std::vector<LayerSizes> body{};  // of a residual block's layers
  std::vector<LayerSizes> shortcut{};
};

// Of the images of a data set.
[[nodiscard]] Extent image_extent(const DatasetSpec& dataset);
[[nodiscard]] std::int64_t class_count(const DatasetSpec& dataset);

// One for each layer; where they do not fit each other, problems at their places.
[[nodiscard]] std::vector<LayerSizes> layer_sizes(const Experiment& experiment, Problems& problems);

// Whether files of a run may be called so: names come from the user's file.
[[nodiscard]] bool can_name_a_file(const std::string& name);

// Whether weights of the layers can be trained as the model and its cost need it: problems otherwise.
void check_model(const Experiment& experiment, const std::vector<LayerSizes>& sizes, Problems& problems);

}  // namespace weft::experiment
