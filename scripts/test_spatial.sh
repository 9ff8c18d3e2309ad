#!/usr/bin/env bash
# Compares random layers and torchvision's networks on tiles with one process, then trains full-width networks on 4 ranks:
# scripts/test_spatial.sh [<cases per rank count>]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cases=${1:-400}
seed=100000
status=0
for ranks in 2 3 4 6 9; do
  echo "== $cases cases from seed $seed on $ranks ranks =="
  WEFT_SPATIAL_CASES=$cases WEFT_SPATIAL_SEED=$seed scripts/mpirun -n "$ranks" .venv/bin/python -m pytest -q \
    -p no:cacheprovider tests/python/spatial/random_test.py || status=1
  seed=$((seed + cases))
done
.venv/bin/pip install --quiet --disable-pip-version-check --no-deps -r requirements-networks.txt || status=1
for ranks in 1 2 3 4; do
  echo "== torchvision's networks on $ranks ranks =="
  scripts/mpirun -n "$ranks" .venv/bin/python -m pytest -q -s -p no:cacheprovider tests/python/spatial/torchvision_test.py ||
    status=1
done
echo "== ResNet-18 and a U-Net on 4 ranks =="
scripts/mpirun -n 4 .venv/bin/python -m pytest -q -s -p no:cacheprovider tests/python/spatial/full_test.py || status=1
exit $status
