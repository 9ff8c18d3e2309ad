// Memory straight from the system, and back to it.
#pragma once

#include <cstddef>

namespace weft::memory {

inline constexpr std::size_t kAlignment = 64;

// Aligned to kAlignment; null where there is none. Large blocks are mapped on their own, so that giving one back really
// gives it back: malloc would keep it wherever something else lies behind it.
[[nodiscard]] void* allocate_pages(std::size_t bytes) noexcept;
void free_pages(void* data, std::size_t bytes) noexcept;

}  // namespace weft::memory
