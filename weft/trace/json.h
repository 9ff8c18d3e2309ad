// JSON output for trace files, robust to arbitrary names and values.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace weft::trace {

using Json = nlohmann::ordered_json;

// Returns one line of JSON. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string dump_json(const Json& json);
// Returns `value` as a JSON number. JSON cannot represent NaN and infinities; they become the strings "NaN", "Infinity"
// and "-Infinity", which float() in Python and Number() in JavaScript parse.
[[nodiscard]] Json json_number(double value);

}  // namespace weft::trace
