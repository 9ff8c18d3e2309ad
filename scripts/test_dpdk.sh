#!/usr/bin/env bash
# The DPDK transport of weft/aggregation, which no other build has: installs libdpdk-dev, builds the library with it, and
# runs the transport's test and that of `backend = dpdk` in torch.distributed's `sml`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
privilege=()
[[ $(id -u) == 0 ]] || privilege=(sudo -n)
if ! pkg-config --exists libdpdk; then
  "${privilege[@]}" apt-get -qq update
  "${privilege[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends libdpdk-dev >/dev/null
fi
cmake --preset release -B build/dpdk -DWEFT_DPDK=ON -DWEFT_BUILD_BENCHMARKS=OFF -DWEFT_BUILD_EXAMPLES=OFF >/dev/null
cmake --build build/dpdk -j "${JOBS:-$(nproc)}" \
  --target test_aggregation_dpdk weft weft_bindings weft_control_client weft_switch
"${privilege[@]}" build/dpdk/tests/aggregation/dpdk_test
"${privilege[@]}" env WEFT_LIBRARY="$PWD/build/dpdk/lib/libweft.so" \
  .venv/bin/python -m pytest -q -p no:cacheprovider tests/python/sml_dpdk_test.py
