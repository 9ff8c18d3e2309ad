#!/usr/bin/env bash
# Tests the DPDK transport, which other builds exclude: installs libdpdk-dev, builds with it, and runs the tests of the
# transport and of `backend = dpdk` in the torch.distributed backend `sml`.
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
  --target test_aggregation_transport_dpdk weft weft_bindings weft_control_client weft_switch
"${privilege[@]}" build/dpdk/tests/aggregation/transport/dpdk_test
"${privilege[@]}" env WEFT_LIBRARY="$PWD/build/dpdk/lib/libweft.so" \
  .venv/bin/python -m pytest -q -p no:cacheprovider tests/python/sml/dpdk_test.py
