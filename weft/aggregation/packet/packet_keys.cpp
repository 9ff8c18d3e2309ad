#include "weft/aggregation/packet/packet_keys.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <cstring>
#include <memory>
#include <stdexcept>

namespace weft::aggregation {
namespace {

struct Free {
  void operator()(EVP_KDF* kdf) const { EVP_KDF_free(kdf); }
  void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }
};

OSSL_PARAM octets(const char* name, std::string_view bytes) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<char*>(bytes.data()), bytes.size());
}

template <class Number>
void append(std::string& text, Number number) {
  for (int shift = 8 * (static_cast<int>(sizeof number) - 1); shift >= 0; shift -= 8) {
    text.push_back(static_cast<char>(number >> shift & 0xff));
  }
}

template <std::size_t size>
std::string_view text_of(const std::array<std::uint8_t, size>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), size};
}

template <class Key>
Key derive(std::string_view key, std::string_view info) {
  Key derived{};
  std::memcpy(derived.data(), hkdf_sha256(key, "", info, derived.size()).data(), derived.size());
  return derived;
}

}  // namespace

std::string hkdf_sha256(std::string_view key, std::string_view salt, std::string_view info, std::size_t length) {
  const std::unique_ptr<EVP_KDF, Free> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  const std::unique_ptr<EVP_KDF_CTX, Free> context(EVP_KDF_CTX_new(kdf.get()));
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
                                   octets(OSSL_KDF_PARAM_KEY, key), octets(OSSL_KDF_PARAM_SALT, salt),
                                   octets(OSSL_KDF_PARAM_INFO, info), OSSL_PARAM_construct_end()};
  std::string derived(length, '\0');
  if (!context ||
      EVP_KDF_derive(context.get(), reinterpret_cast<unsigned char*>(derived.data()), length, parameters) != 1) {
    throw std::runtime_error("weft: HKDF-SHA256 failed in libcrypto");
  }
  return derived;
}

SessionKey derive_session_key(std::string_view job_secret, std::uint64_t session) {
  std::string info = "weft session key 1";
  append(info, session);
  return derive<SessionKey>(job_secret, info);
}

SenderKey derive_sender_key(const SessionKey& key, const Sender& sender) {
  std::string info = "weft packet key 1";
  append(info, sender.epoch);
  append(info, sender.job);
  append(info, static_cast<std::uint8_t>(sender.role));
  append(info, sender.rank);
  info += text_of(sender.salt);
  return derive<SenderKey>(text_of(key), info);
}

WorkerSalt random_worker_salt() {
  WorkerSalt salt{};
  if (RAND_bytes(salt.data(), static_cast<int>(salt.size())) != 1) {
    throw std::runtime_error("weft: libcrypto cannot generate random bytes");
  }
  return salt;
}

}  // namespace weft::aggregation
