// Derivation of the keys that authenticate extended packets; docs/aggregation-protocol.md states the construction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft::aggregation {

// Secret of one session, known to its workers and the switch. All zeros: the session has no key and no authentication.
using SessionKey = std::array<std::uint8_t, 32>;
// AES-128 key of one sender.
using SenderKey = std::array<std::uint8_t, 16>;
// Random bytes that a worker draws once per session. They make its packet key fresh even if the control plane repeats
// a session, epoch and job number.
using WorkerSalt = std::array<std::uint8_t, 16>;

// Sender of authenticated packets. Each sender has its own key.
struct Sender {
  enum class Role : std::uint8_t { kWorker = 0, kSwitch = 1 };
  Role role = Role::kWorker;
  std::uint64_t epoch = 0;  // epoch of the switch
  std::uint32_t job = 0;    // number of the job within the epoch
  std::uint16_t rank = 0;   // 0 for the switch
  WorkerSalt salt{};        // zeros for the switch, which draws the epoch itself
};

// HKDF with SHA-256 (RFC 5869). Throws std::runtime_error if libcrypto fails.
[[nodiscard]] std::string hkdf_sha256(std::string_view key, std::string_view salt, std::string_view info,
                                      std::size_t length);

[[nodiscard]] SessionKey derive_session_key(std::string_view job_secret, std::uint64_t session);
[[nodiscard]] SenderKey derive_sender_key(const SessionKey& key, const Sender& sender);
[[nodiscard]] WorkerSalt random_worker_salt();

}  // namespace weft::aggregation
