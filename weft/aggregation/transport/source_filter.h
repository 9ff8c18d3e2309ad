// Kernel filter that drops packets from unknown senders before they occupy a socket's buffer.
#pragma once

#include <span>

#include "weft/aggregation/packet/address.h"

namespace weft::aggregation {

// Lets a UDP socket receive only from `sources`; port 0 matches any port; an empty list blocks all
// senders. If the kernel has no room for all sources, the filter admits their hosts from any port; if it has no room
// for the hosts either, all senders are admitted. Returns whether a filter is active.
bool filter_sources(int socket, std::span<const Address> sources);

}  // namespace weft::aggregation
