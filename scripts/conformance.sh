#!/usr/bin/env bash
# Runs PyTorch's tests of torch.distributed against the backends `weft`, `gloo` and `sml` (through a switch, in both packet
# formats): scripts/conformance.sh [<ranks>...]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
status=0

# run <ranks> <backend> [<option>...]: runs the suite. Failures of gloo are PyTorch's and do not count.
run() {
  local ranks=$1 backend=$2
  echo "== $backend${WEFT_SML_MODE:+ ($WEFT_SML_MODE)} on $ranks ranks =="
  scripts/mpirun -n "$ranks" .venv/bin/python tests/conformance/distributed_suite.py --backend "$backend" "${@:3}"
  [[ $? == 0 || $backend == gloo ]] || status=1
}

for n in ${@:-2 4 8}; do
  run "$n" weft
  run "$n" gloo
  # With 8 ranks only a representative part runs: every group needs a set-up at the switch.
  part=()
  ((n < 8)) || part=(--select representative)
  for mode in extended classic; do WEFT_SML_MODE=$mode run "$n" sml "${part[@]}"; done
done

# torchbraid's tests and scripts, if WEFT_TORCHBRAID_SUITE names a checkout.
.venv/bin/python tests/conformance/torchbraid_suite.py || status=1
.venv/bin/python tests/conformance/torchbraid_scripts.py || status=1
exit $status
