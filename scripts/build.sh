#!/usr/bin/env bash
# Configures a preset once and builds it: scripts/build.sh <preset> [<target>...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
shift
if [[ ! -f build/$preset/build.ninja ]]; then
  cmake --preset "$preset" >/dev/null
fi
targets=()
(($#)) && targets=(--target "$@")
cmake --build "build/$preset" -j "${JOBS:-$(nproc)}" "${targets[@]}"
