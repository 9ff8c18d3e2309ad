#include "weft/aggregation/packet/gmac.h"

#include <openssl/evp.h>

#include <stdexcept>

namespace weft::aggregation {
namespace {

const unsigned char* octets(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

}  // namespace

void Gmac::Free::operator()(evp_cipher_ctx_st* context) const { EVP_CIPHER_CTX_free(context); }

Gmac::Gmac(const SenderKey& key) : context_(EVP_CIPHER_CTX_new()) {
  // GMAC is GCM without plaintext. EVP's cipher interface takes 100 ns less per packet than its MAC interface.
  if (!context_ || EVP_EncryptInit_ex2(context_.get(), EVP_aes_128_gcm(), key.data(), nullptr, nullptr) != 1) {
    throw std::runtime_error("weft: libcrypto does not provide AES-128-GCM");
  }
}

Tag Gmac::tag(const GmacNonce& nonce, std::span<const std::byte> first, std::span<const std::byte> second) {
  EVP_CIPHER_CTX* context = context_.get();
  Tag tag{};
  int length = 0;
  unsigned char none = 0;
  const auto add = [&](std::span<const std::byte> part) {
    return part.empty() ||
           EVP_EncryptUpdate(context, nullptr, &length, octets(part.data()), static_cast<int>(part.size())) == 1;
  };
  const bool done = EVP_EncryptInit_ex2(context, nullptr, nullptr, octets(nonce.data()), nullptr) == 1 && add(first) &&
                    add(second) && EVP_EncryptFinal_ex(context, &none, &length) == 1 &&
                    EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag.size()), tag.data()) == 1;
  if (!done) throw std::runtime_error("weft: AES-128-GMAC failed in libcrypto");
  return tag;
}

}  // namespace weft::aggregation
