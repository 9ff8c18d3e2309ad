// What a layer of each kind makes of what goes into it: sizes only.
#pragma once

#include <functional>
#include <vector>

#include "weft/experiment/sizes.h"

namespace weft::experiment {

// Layers with weights over windows; layers with windows of any kind.
[[nodiscard]] bool is_filter(LayerKind kind);
[[nodiscard]] bool is_windowed(LayerKind kind);

// With those of a block's own layers. What does not fit becomes a problem at the layer's place.
[[nodiscard]] LayerSizes sizes_of(const LayerSpec& layer, const Extent& in, Problems& problems);

// Every layer, behind those that it has in itself.
void for_each_layer(const std::vector<LayerSpec>& layers, const std::function<void(const LayerSpec&)>& visit);

// "5 x 3".
[[nodiscard]] std::string text_of(const Sizes& sizes);

}  // namespace weft::experiment
