// The known name that somebody probably meant.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace weft::text {

// Edits (insertions, deletions, replacements, swaps of neighbours) between two words.
[[nodiscard]] std::size_t edit_distance(const std::string& a, const std::string& b);

// Of those within a third of the word's length; the first of the nearest.
[[nodiscard]] std::optional<std::string> nearest(const std::string& word, const std::vector<std::string>& known);

// "; did you mean 'x'?", or nothing.
[[nodiscard]] std::string suggestion(const std::string& word, const std::vector<std::string>& known);

// "a, b, c"; "none".
[[nodiscard]] std::string listed(const std::vector<std::string>& names);

}  // namespace weft::text
