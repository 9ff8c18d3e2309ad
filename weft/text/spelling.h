// Spelling suggestions for unknown names in error messages.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace weft::text {

// The number of edits (insertions, deletions, replacements, swaps of adjacent letters) between two words.
[[nodiscard]] std::size_t edit_distance(const std::string& a, const std::string& b);

// The known name with the smallest edit distance, if the distance is at most a third of the word's length. Ties resolve
// to the first name.
[[nodiscard]] std::optional<std::string> nearest(const std::string& word, const std::vector<std::string>& known);

// Returns "; did you mean 'x'?", or an empty string if no known name is near.
[[nodiscard]] std::string suggestion(const std::string& word, const std::vector<std::string>& known);

// Returns the names as "a, b, c"; "none" if the list is empty.
[[nodiscard]] std::string listed(const std::vector<std::string>& names);

}  // namespace weft::text
