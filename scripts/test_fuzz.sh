#!/usr/bin/env bash
# Runs every fuzz target, each for a number of seconds: scripts/test_fuzz.sh [<seconds>]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-300}
targets=()
for source in tests/fuzz/corpus/*; do targets+=("${source##*/}"); done
scripts/build.sh release "${targets[@]/#/fuzz_}" || exit 1
status=0
for target in "${targets[@]}"; do
  found=build/release/tests/fuzz/found/$target
  corpus=tests/fuzz/corpus/$target
  if [[ -d $found ]]; then # libFuzzer
    build/release/tests/fuzz/fuzz_"$target" -max_total_time="$seconds" -max_len=8192 -artifact_prefix="$found-" "$found" "$corpus"
  else # the fallback driver, which takes a number of inputs
    WEFT_FUZZ_RUNS=$((seconds * 5000)) build/release/tests/fuzz/fuzz_"$target" "$corpus"
  fi || status=1
done
exit $status
