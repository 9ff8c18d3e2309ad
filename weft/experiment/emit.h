// A tree as YAML text, for the file that a run keeps of its experiment.
#pragma once

#include <string>

#include "weft/experiment/document.h"

namespace weft::experiment {

// Reads back as the same tree; values that are shared become anchors and aliases.
[[nodiscard]] std::string to_yaml(const Value& root);

}  // namespace weft::experiment
