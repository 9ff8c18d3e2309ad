// Whether bytes are text.
#pragma once

#include <string_view>

namespace weft::text {

// Well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
[[nodiscard]] bool is_utf8(std::string_view bytes);

}  // namespace weft::text
