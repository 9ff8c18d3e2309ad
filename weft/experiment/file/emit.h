// Writes a document as YAML: the config.yaml of a run.
#pragma once

#include <string>

#include "weft/experiment/file/document.h"

namespace weft::experiment {

// Returns YAML that parses to the same tree. Shared values become anchors and aliases. Throws ExperimentError if a tag
// contains characters that YAML cannot express.
[[nodiscard]] std::string to_yaml(const Value& root);

}  // namespace weft::experiment
