// Packets past the kernel, by DPDK. no_dpdk.cpp stands in where the build has none (cmake -DWEFT_DPDK=ON).
//
// The interface keeps its IP address in the kernel, which goes on answering ARP for it and is asked for the switch's
// hardware address; so the switch must be in the same subnet, as SwitchML's are.
#pragma once

#include <memory>
#include <string>

#include "weft/aggregation/transport.h"

namespace weft::aggregation {

// SwitchML's [backend.dpdk].
struct DpdkOptions {
  Address local;  // an address of the interface; port 0: any free one
  std::string cores = "0";
  std::string extra_eal_options;  // "--no-huge --no-pci --vdev=net_af_packet0,iface=eth0", for example
  int port_id = 0;
  int pool_size = 0;  // packet buffers; 0: 4096
  int pool_cache_size = 256;
  int burst_rx = 64;
  int burst_tx = 64;
};

[[nodiscard]] bool has_dpdk();
// A worker's transport: its descriptor() tells nothing of packets, so a SwitchLoop cannot wait for it. DPDK is started
// with the first one's options, once in a process; later ones of that process use other ports. Throws
// std::runtime_error: what DPDK refused, or in a build without it how to get it.
[[nodiscard]] std::unique_ptr<Transport> open_dpdk(const DpdkOptions& options);

}  // namespace weft::aggregation
