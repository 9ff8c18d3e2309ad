#!/usr/bin/env bash
# PyTorch's own tests of torch.distributed against the backend `weft`, with gloo beside it: scripts/conformance.sh [<ranks>...]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
status=0
for ranks in "${@:-2 4 8}"; do
  for n in $ranks; do
    for backend in weft gloo; do
      echo "== $backend on $n ranks =="
      scripts/mpirun -n "$n" .venv/bin/python tests/conformance/distributed_suite.py --backend "$backend"
      [[ $? == 0 || $backend == gloo ]] || status=1
    done
  done
done
exit $status
