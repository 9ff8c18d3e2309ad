// UTF-8 validation.
#pragma once

#include <string_view>

namespace weft::text {

// Whether `bytes` is well-formed UTF-8: no overlong forms, no surrogates, no code points above U+10FFFF.
[[nodiscard]] bool is_utf8(std::string_view bytes);

}  // namespace weft::text
