#!/usr/bin/env bash
# The long runs of weft/aggregation: scripts/test_aggregation.sh [<elements to sum in the simulator> [<seconds a fuzz target>]]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
elements=${1:-100000000}
seconds=${2:-300}
targets=(aggregation_packet aggregation_frame aggregation_floats aggregation_config control_keys control_requests)
scripts/build.sh release test_aggregation_simulation "${targets[@]/#/fuzz_}" || exit 1
status=0
WEFT_AGGREGATION_ELEMENTS=$elements build/release/tests/aggregation/simulation_test || status=1
for target in "${targets[@]}"; do
  found=build/release/tests/fuzz/found/$target
  corpus=tests/fuzz/corpus/$target
  if [[ -d $found ]]; then # libFuzzer's; else our own driver, which takes a number of inputs
    build/release/tests/fuzz/fuzz_"$target" -max_total_time="$seconds" -max_len=8192 -artifact_prefix="$found-" "$found" "$corpus"
  else
    WEFT_FUZZ_RUNS=$((seconds * 5000)) build/release/tests/fuzz/fuzz_"$target" "$corpus"
  fi || status=1
done
exit $status
