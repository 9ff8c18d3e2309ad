#!/usr/bin/env bash
# Configures a preset if necessary and builds it: scripts/build.sh <preset> [<target>...]
#
# Ninja's status line shows finished and total steps, the elapsed time and an estimate of the remaining time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
shift
if [[ ! -f build/$preset/build.ninja ]]; then
  echo "build: configuring $preset"
  cmake --preset "$preset" >/dev/null
fi
targets=()
(($#)) && targets=(--target "$@")
export NINJA_STATUS='[%f/%t, %w elapsed, about %W left] '
cmake --build "build/$preset" -j "${JOBS:-$(nproc)}" "${targets[@]}"
