// A filter inside the kernel: packets of other senders are dropped before they take room in a socket's buffer.
#pragma once

#include <span>

#include "weft/aggregation/address.h"

namespace weft::aggregation {

// Of a UDP socket; port 0 stands for any. No sources: nothing comes in. Where the kernel has no room for so many, their
// hosts may send from any port; where it has none for those, everybody may. Whether there is a filter.
bool filter_sources(int socket, std::span<const Address> sources);

}  // namespace weft::aggregation
