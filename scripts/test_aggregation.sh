#!/usr/bin/env bash
# Sums a large number of elements in the aggregation simulator: scripts/test_aggregation.sh [<elements>]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/build.sh release test_aggregation_simulation
WEFT_AGGREGATION_ELEMENTS=${1:-100000000} build/release/tests/aggregation/simulation_test
