// Text and numbers as JSON wants them, whatever they hold.
#pragma once

#include <string>
#include <string_view>

namespace weft::trace {

// With quotes around it. Control characters are escaped; bytes that are no UTF-8 become U+FFFD.
[[nodiscard]] std::string json_text(std::string_view text);
// The shortest form that reads back as the same double. JSON has no word for what is not finite: "NaN", "Infinity" and
// "-Infinity" in quotes, which float() of Python and Number() of JavaScript read.
[[nodiscard]] std::string json_number(double value);

}  // namespace weft::trace
