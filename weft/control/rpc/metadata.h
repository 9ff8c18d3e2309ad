// gRPC metadata that weft adds to SwitchML's messages, which stay unchanged.
#pragma once

#include <string>

#include "weft/aggregation/config/job.h"
#include "weft/aggregation/packet/shared_slots.h"

namespace weft::control::rpc {

// Metadata keys; keys that end in -bin carry binary values.
inline constexpr const char* kJob = "weft-job";
inline constexpr const char* kTerms = "weft-terms";
inline constexpr const char* kNonce = "weft-nonce-bin";
inline constexpr const char* kRequestMac = "weft-mac-bin";
inline constexpr const char* kAdmission = "weft-admission";

// Request parameters that SwitchML's messages have no field for.
struct Terms {
  aggregation::Mode mode = aggregation::Mode::kSwitchMl;
  int packet_elements = 0;  // 0: given by the request's packet_size
  int port = 0;             // UDP port of the worker
  int slots = 0;
  int first_operation = -1;  // see SessionRequest; -1: not given
  aggregation::WorkerSalt salt{};
  aggregation::SharedMemoryName memory{};

  // Returns "mode=extended elements=1024 port=4000 slots=0 first=-1 salt=<32 hexadecimal digits>", and with shared
  // memory " process=17 descriptor=5 cookie=<32 hexadecimal digits>".
  [[nodiscard]] std::string write() const;
  // Returns false if the text is invalid.
  [[nodiscard]] bool read(const std::string& text);
};

[[nodiscard]] std::string write_admission(const aggregation::Admission& admission);
// Returns false if the text is invalid.
[[nodiscard]] bool read_admission(const std::string& text, aggregation::Admission& admission);

}  // namespace weft::control::rpc
