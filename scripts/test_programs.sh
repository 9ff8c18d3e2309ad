#!/usr/bin/env bash
# Compares the derivatives of random communication programs on 2, 3 and 4 ranks with one process:
# scripts/test_programs.sh [<programs in total>]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
programs=${1:-10000}
each=$(((programs + 2) / 3))
seed=100000
status=0
for ranks in 2 3 4; do
  echo "== $each programs from seed $seed on $ranks ranks =="
  WEFT_PROGRAMS=$each WEFT_PROGRAMS_FROM=$seed scripts/mpirun -n "$ranks" .venv/bin/python -m pytest -q \
    -p no:cacheprovider tests/python/communication/random_programs_test.py || status=1
  seed=$((seed + each))
done
exit $status
