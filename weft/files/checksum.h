// A streaming 64-bit checksum (XXH3). It detects damage and replaced content, but not forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

struct XXH3_state_s;

namespace weft::files {

class Checksum {
 public:
  Checksum();

  // The result depends only on the bytes, not on their division into calls.
  void add(const void* data, std::size_t bytes) noexcept;
  [[nodiscard]] std::uint64_t value() const noexcept;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const noexcept;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

// Returns the checksum of a block of memory as 16 hexadecimal digits.
[[nodiscard]] std::string checksum_text(const void* data, std::size_t bytes);

}  // namespace weft::files
