// The kinds of layers that weft's own form knows: their names, and which settings each takes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "weft/experiment/fields.h"
#include "weft/experiment/layer_spec.h"

namespace weft::experiment {

struct PlainKind {
  const char* name;
  LayerKind kind;
  std::function<void(Fields&, LayerSpec&)> read;
  // `- max_pool: 2` stands for this key with that value; null where a kind takes no value alone.
  const char* short_key;
};

// The kind of this name; null, with the nearest one as a problem at `place`, where there is none.
[[nodiscard]] const PlainKind* plain_kind(const std::string& name, const Place& place, Problems& problems);

// `activation: relu` beside a layer's other settings, and the setting that some of them have of their own.
void read_activation(Fields& fields, LayerSpec& layer, const char* otherwise);

}  // namespace weft::experiment
