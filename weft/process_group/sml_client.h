// Opens libweft_control.so, where gRPC lives, apart from torch's symbols.
#pragma once

#include <memory>

#include "weft/control/client.h"

namespace weft::process_group {

// From beside libweft.so. Throws (std::runtime_error) naming the file if it cannot be opened.
[[nodiscard]] std::unique_ptr<control::Client> open_control_client(const control::ClientOptions& options);

}  // namespace weft::process_group
