#include "weft/memory/pages.h"

#include <sys/mman.h>

#include <cstdlib>

namespace weft::memory {
namespace {

constexpr std::size_t kMapped = std::size_t{1} << 20;  // blocks of at least this size use mmap

}  // namespace

void* allocate_pages(std::size_t bytes) noexcept {
  if (bytes < kMapped) return std::aligned_alloc(kAlignment, bytes);
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  // Huge pages, if the system has them: fewer page faults, and cross-memory attach (weft/node) is faster.
  static_cast<void>(::madvise(data, bytes, MADV_HUGEPAGE));
  return data;
}

void free_pages(void* data, std::size_t bytes) noexcept {
  if (bytes < kMapped) {
    std::free(data);
  } else {
    ::munmap(data, bytes);
  }
}

}  // namespace weft::memory
