// How a worker shows that it has its job's key without sending it: an HMAC over the switch's nonce and the request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft::control {

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;

// Bytes that nobody can guess.
[[nodiscard]] std::string fresh_nonce();

// What is proven. All of it enters the HMAC, each part with its length: no two claims have the same bytes.
struct Claim {
  std::string method;  // the RPC
  std::string job;
  std::string terms;    // what was asked besides the message
  std::string message;  // the serialised request
};

// HMAC-SHA256.
[[nodiscard]] std::string prove(const std::string& secret, const std::string& nonce, const Claim& claim);
// In a time that does not depend on where a wrong proof is wrong.
[[nodiscard]] bool proves(const std::string& proof, const std::string& secret, const std::string& nonce,
                          const Claim& claim);

// The key that authenticates a session's packets: another one for every session, known to who knows the job's.
[[nodiscard]] std::string packet_key(const std::string& secret, std::uint64_t session);

}  // namespace weft::control
