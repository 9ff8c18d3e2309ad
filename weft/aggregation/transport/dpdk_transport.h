// Transport over DPDK, which bypasses the kernel. Builds without DPDK (cmake -DWEFT_DPDK=OFF) use no_dpdk.cpp.
//
// The kernel keeps the interface's IP address, answers ARP for it and resolves the switch's hardware address. The
// switch must therefore be in the same subnet.
#pragma once

#include <memory>
#include <string>

#include "weft/aggregation/transport/transport.h"

namespace weft::aggregation {

// Options of SwitchML's section [backend.dpdk].
struct DpdkOptions {
  Address local;  // an address of the interface; port 0: any free port
  std::string cores = "0";
  std::string extra_eal_options;  // "--no-huge --no-pci --vdev=net_af_packet0,iface=eth0", for example
  int port_id = 0;
  int pool_size = 0;  // packet buffers; 0: 4096
  int pool_cache_size = 256;
  int burst_rx = 64;
  int burst_tx = 64;
};

[[nodiscard]] bool has_dpdk();
// Opens a transport for workers. Its descriptor() does not signal packets, so a SwitchLoop cannot use it. The first
// call in a process starts DPDK with its options; later transports of the process use other ports. Throws
// std::runtime_error with DPDK's error, or if the build has no DPDK.
[[nodiscard]] std::unique_ptr<Transport> open_dpdk(const DpdkOptions& options);

}  // namespace weft::aggregation
