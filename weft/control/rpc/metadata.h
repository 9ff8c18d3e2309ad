// What weft's workers and switch tell each other beside SwitchML's messages, which stay byte for byte what they are.
#pragma once

#include <string>

#include "weft/aggregation/job.h"

namespace weft::control::rpc {

// Names of gRPC metadata; those that end in -bin carry any bytes.
inline constexpr const char* kJob = "weft-job";
inline constexpr const char* kTerms = "weft-terms";
inline constexpr const char* kNonce = "weft-nonce-bin";
inline constexpr const char* kProof = "weft-proof-bin";
inline constexpr const char* kAdmission = "weft-admission";

// What a worker wants that SwitchML's request has no field for.
struct Terms {
  aggregation::Mode mode = aggregation::Mode::kSwitchMl;
  int packet_elements = 0;  // 0: as the request's packet_size says
  int port = 0;             // UDP, of the worker
  int slots = 0;
  int first_operation = -1;  // see SetUp; -1: not told

  // "mode=extended elements=1024 port=4000 slots=0 first=-1"
  [[nodiscard]] std::string write() const;
  // False for any other text.
  [[nodiscard]] bool read(const std::string& text);
};

[[nodiscard]] std::string write_admission(const aggregation::Admission& admission);
// False for any other text.
[[nodiscard]] bool read_admission(const std::string& text, aggregation::Admission& admission);

}  // namespace weft::control::rpc
