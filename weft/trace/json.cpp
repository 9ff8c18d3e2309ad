#include "weft/trace/json.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace weft::trace {

std::string dump_json(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

}  // namespace weft::trace
