// AES-128-GMAC (NIST SP 800-38D), computed by OpenSSL.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "weft/aggregation/packet/packet_keys.h"

struct evp_cipher_ctx_st;  // OpenSSL's EVP_CIPHER_CTX

namespace weft::aggregation {

inline constexpr std::size_t kTagBytes = 16;
inline constexpr std::size_t kGmacNonceBytes = 12;
using Tag = std::array<std::byte, kTagBytes>;
using GmacNonce = std::array<std::byte, kGmacNonceBytes>;

// Not thread-safe: calls share one OpenSSL context, so that a tag needs no allocation.
class Gmac {
 public:
  explicit Gmac(const SenderKey& key);

  // Under one key, a nonce must never be used for two different messages: that would reveal the authentication key.
  // The message is `first` followed by `second`. Throws std::runtime_error if libcrypto fails.
  [[nodiscard]] Tag tag(const GmacNonce& nonce, std::span<const std::byte> first,
                        std::span<const std::byte> second = {});

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

}  // namespace weft::aggregation
