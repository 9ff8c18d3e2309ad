// Allocates memory from the system, bypassing malloc for large blocks.
#pragma once

#include <cstddef>

namespace weft::memory {

inline constexpr std::size_t kAlignment = 64;

// Returns memory aligned to kAlignment, or null on failure. Each large block has its own mapping, so that free_pages()
// always returns it to the system; malloc keeps memory that lies below other allocations.
[[nodiscard]] void* allocate_pages(std::size_t bytes) noexcept;
void free_pages(void* data, std::size_t bytes) noexcept;

}  // namespace weft::memory
