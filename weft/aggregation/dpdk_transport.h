// Packets past the kernel, by DPDK: a place in the interface. no_dpdk.cpp stands in where the build has none.
#pragma once

#include <memory>
#include <string>

#include "weft/aggregation/transport.h"

namespace weft::aggregation {

struct DpdkOptions {
  Address local;
  std::string cores = "0";
  std::string extra_eal_options;  // as in SwitchML's [backend.dpdk]
  int port_id = 0;
};

[[nodiscard]] bool has_dpdk();
// Throws std::runtime_error that says how to get it, in a build without.
[[nodiscard]] std::unique_ptr<Transport> open_dpdk(const DpdkOptions& options);

}  // namespace weft::aggregation
