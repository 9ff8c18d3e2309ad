// Authentication of requests with a job's key: an HMAC over the switch's nonce and the request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft::control {

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kRequestMacBytes = 32;

// Returns kNonceBytes cryptographically random bytes.
[[nodiscard]] std::string fresh_nonce();

// The authenticated parts of a request. Each enters the HMAC with its length, so different claims have different input.
struct Claim {
  std::string method;  // the RPC
  std::string job;
  std::string terms;    // metadata besides the message
  std::string message;  // the serialised request
};

// Returns the HMAC-SHA256 of `nonce` and `claim` under the key `secret`.
[[nodiscard]] std::string request_mac(const std::string& secret, const std::string& nonce, const Claim& claim);
// Returns whether `mac` is correct. Compares in constant time.
[[nodiscard]] bool verify_request_mac(const std::string& mac, const std::string& secret, const std::string& nonce,
                                      const Claim& claim);

}  // namespace weft::control
