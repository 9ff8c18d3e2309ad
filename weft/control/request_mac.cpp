#include "weft/control/request_mac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <stdexcept>

namespace weft::control {
namespace {

void append_number(std::string& text, std::uint64_t number) {
  for (int shift = 56; shift >= 0; shift -= 8) text.push_back(static_cast<char>((number >> shift) & 0xFF));
}

void append(std::string& text, const std::string& part) {
  append_number(text, part.size());
  text += part;
}

std::string hmac(const std::string& secret, const std::string& text) {
  std::string digest(kRequestMacBytes, '\0');
  unsigned length = 0;
  const auto* done = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                          reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                          reinterpret_cast<unsigned char*>(digest.data()), &length);
  if (done == nullptr || length != kRequestMacBytes) throw std::runtime_error("weft: HMAC-SHA256 failed in libcrypto");
  return digest;
}

}  // namespace

std::string fresh_nonce() {
  std::string nonce(kNonceBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) != 1) {
    throw std::runtime_error("weft: libcrypto cannot generate random bytes");
  }
  return nonce;
}

std::string request_mac(const std::string& secret, const std::string& nonce, const Claim& claim) {
  std::string text = "weft set-up 1";
  for (const std::string* part : {&nonce, &claim.method, &claim.job, &claim.terms, &claim.message}) append(text, *part);
  return hmac(secret, text);
}

bool verify_request_mac(const std::string& mac, const std::string& secret, const std::string& nonce,
                        const Claim& claim) {
  const std::string expected = request_mac(secret, nonce, claim);
  return mac.size() == expected.size() && CRYPTO_memcmp(mac.data(), expected.data(), expected.size()) == 0;
}

}  // namespace weft::control
