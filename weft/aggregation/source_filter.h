// A filter inside the kernel: packets of other senders are dropped before they take room in a socket's buffer.
#pragma once

#include <span>

#include "weft/aggregation/address.h"

namespace weft::aggregation {

// Of a UDP socket; port 0 stands for any. No sources: nothing comes in. More than the kernel's programs can name: no
// filter.
void filter_sources(int socket, std::span<const Address> sources);

}  // namespace weft::aggregation
