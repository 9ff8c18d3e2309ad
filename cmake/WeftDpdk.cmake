# DPDK for weft/aggregation: one of its two files is built, dpdk_transport.cpp or no_dpdk.cpp.
include_guard()
set(dpdk "")
set(without_dpdk dpdk_transport.cpp)
if(WEFT_DPDK)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(dpdk REQUIRED IMPORTED_TARGET libdpdk)
  # Its flags would make all of weft need SSE4 and see DPDK's settings; the headers ask for both only where they are used.
  set(without_dpdk no_dpdk.cpp)
  set(dpdk PkgConfig::dpdk)
endif()
