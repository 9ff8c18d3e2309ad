#!/usr/bin/env bash
# PyTorch's own tests of torch.distributed against the backends `weft` and `sml` (through a switch, in both formats), with
# gloo beside them: scripts/conformance.sh [<ranks>...]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
status=0

# run <ranks> <backend> [<option>...]: gloo's failures are PyTorch's own.
run() {
  local ranks=$1 backend=$2
  echo "== $backend${WEFT_SML_MODE:+ ($WEFT_SML_MODE)} on $ranks ranks =="
  scripts/mpirun -n "$ranks" .venv/bin/python tests/conformance/distributed_suite.py --backend "$backend" "${@:3}"
  [[ $? == 0 || $backend == gloo ]] || status=1
}

for n in ${@:-2 4 8}; do
  run "$n" weft
  run "$n" gloo
  # Of 8 ranks on few cores only a part: each group is a set-up at the switch.
  part=()
  ((n < 8)) || part=(--select representative)
  for mode in extended classic; do WEFT_SML_MODE=$mode run "$n" sml "${part[@]}"; done
done
exit $status
