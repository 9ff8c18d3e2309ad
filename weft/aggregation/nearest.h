// The known name that a misspelt one probably meant.
#pragma once

#include <string>
#include <vector>

namespace weft::aggregation {

// The nearest by edit distance; empty if none is near.
[[nodiscard]] std::string nearest(const std::string& name, const std::vector<std::string>& known);
// "; did you mean 'x'?", or nothing.
[[nodiscard]] std::string suggestion(const std::string& name, const std::vector<std::string>& known);

}  // namespace weft::aggregation
