#include "weft/files/checksum.h"

#include <xxhash.h>

#include <cstdio>
#include <new>

namespace weft::files {

Checksum::Checksum() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_.get());
}

void Checksum::add(const void* data, std::size_t bytes) noexcept {
  if (bytes > 0) XXH3_64bits_update(state_.get(), data, bytes);
}

std::uint64_t Checksum::value() const noexcept { return XXH3_64bits_digest(state_.get()); }

std::string checksum_text(const void* data, std::size_t bytes) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(XXH3_64bits(data, bytes)));
  return text;
}

void Checksum::Free::operator()(XXH3_state_s* state) const noexcept { XXH3_freeState(state); }

}  // namespace weft::files
