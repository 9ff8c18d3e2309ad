# DPDK for weft/aggregation: one of its two files is built, dpdk_transport.cpp or no_dpdk.cpp.
include_guard()
set(dpdk "")
set(without_dpdk dpdk_transport.cpp)
if(WEFT_DPDK)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(dpdk REQUIRED IMPORTED_TARGET libdpdk)
  # With its flags, and so its demands on the processor (SSE4), for all that uses this folder.
  set(without_dpdk no_dpdk.cpp)
  set(dpdk PkgConfig::dpdk)
endif()
