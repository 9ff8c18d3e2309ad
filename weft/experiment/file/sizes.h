// The sizes of each layer's input and output, computed layer by layer from the image size, and the checks that depend
// on them.
#pragma once

#include <functional>
#include <vector>

#include "weft/experiment/file/layer_spec.h"
#include "weft/experiment/file/problems.h"

namespace weft::experiment {

struct DatasetSpec;
struct Experiment;

// Returns the extent of a data set's images and its number of classes.
[[nodiscard]] Extent image_extent(const DatasetSpec& dataset);
[[nodiscard]] std::int64_t class_count(const DatasetSpec& dataset);

// Returns the sizes of each layer. Reports layers that do not fit each other.
[[nodiscard]] std::vector<LayerSizes> layer_sizes(const Experiment& experiment, Problems& problems);

// Calls `visit` for every layer, inner layers first.
void for_each_layer(const std::vector<LayerSpec>& layers, const std::function<void(const LayerSpec&)>& visit);

// Returns "5 x 3".
[[nodiscard]] std::string text_of(const Sizes& sizes);
// Returns the product of non-negative factors, or the largest std::int64_t if it overflows.
[[nodiscard]] std::int64_t saturating_product(const Sizes& factors);

// Returns true if a file of a run may have this name. Names come from the user's file.
[[nodiscard]] bool can_name_a_file(const std::string& name);

// Reports layers and settings that the model and its cost cannot train.
void check_model(const Experiment& experiment, const std::vector<LayerSizes>& sizes, Problems& problems);

}  // namespace weft::experiment
