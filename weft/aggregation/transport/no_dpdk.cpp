// Replacement for dpdk_transport.cpp in builds without DPDK.
#include <stdexcept>

#include "weft/aggregation/transport/dpdk_transport.h"

namespace weft::aggregation {

bool has_dpdk() { return false; }

std::unique_ptr<Transport> open_dpdk(const DpdkOptions& options) {
  throw std::runtime_error("this build has no DPDK transport for " + options.local.describe() +
                           "; use UDP sockets, or build with -DWEFT_DPDK=ON and libdpdk-dev");
}

}  // namespace weft::aggregation
