#!/usr/bin/env bash
# The long runs of weft/aggregation: scripts/test_aggregation.sh [<elements to sum in the simulator> [<fuzzed inputs>]]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
elements=${1:-100000000}
inputs=${2:-2000000}
scripts/build.sh release test_aggregation_simulation fuzz_aggregation_packet || exit 1
status=0
WEFT_AGGREGATION_ELEMENTS=$elements build/release/tests/aggregation/simulation_test || status=1
WEFT_FUZZ_RUNS=$inputs build/release/tests/fuzz/fuzz_aggregation_packet tests/fuzz/corpus/aggregation_packet || status=1
exit $status
