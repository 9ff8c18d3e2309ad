// Loads libweft_control.so, which contains gRPC, in its own symbol scope.
#pragma once

#include <memory>

#include "weft/aggregation/config/control_client.h"

namespace weft::process_group {

// Loads the library from the folder of libweft.so. Throws std::runtime_error with the file name on failure.
[[nodiscard]] std::unique_ptr<aggregation::ControlClient> open_control_client(
    const aggregation::ControlClientOptions& options);

}  // namespace weft::process_group
