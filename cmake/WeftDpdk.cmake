# DPDK for weft/aggregation/transport: the build contains either dpdk_transport.cpp or no_dpdk.cpp.
include_guard()
set(dpdk "")
set(without_dpdk dpdk_transport.cpp)
if(WEFT_DPDK)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(dpdk REQUIRED IMPORTED_TARGET libdpdk)
  # DPDK's compile flags, which require SSE4, apply to every target that uses this folder.
  set(without_dpdk no_dpdk.cpp)
  set(dpdk PkgConfig::dpdk)
endif()
