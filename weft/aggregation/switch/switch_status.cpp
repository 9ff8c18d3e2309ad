#include "weft/aggregation/switch/switch_status.h"

namespace weft::aggregation {

const char* describe(Rejected cause) {
  static constexpr std::array<const char*, kRejectedCauses> kNames{
      "malformed", "unknown_job", "unknown_source", "forged", "late", "bad_slot", "bad_shape", "wrong_operation"};
  return kNames[static_cast<std::size_t>(cause)];
}

}  // namespace weft::aggregation
