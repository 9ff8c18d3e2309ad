#!/usr/bin/env bash
# Opens the report.html of real runs in headless Chromium and writes screenshots to docs/. Installs Chromium if it is
# missing. Called by `make test-report`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset WEFT_DATA # use the sample that `make env` installs
weft=build/${WEFT_PRESET:-release}/bin/weft
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if ! command -v chromium >/dev/null; then
  privilege=()
  [[ $(id -u) == 0 ]] || privilege=(sudo -n)
  echo "test-report: installing chromium"
  "${privilege[@]}" apt-get -qq update
  "${privilege[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium \
    fonts-dejavu-core >/dev/null
fi
# A model whose report has every section: pre-training, reconstructions, stimuli.
"$weft" train -n 4 examples/experiments/mnist_distarray_gb.yaml --out "$folder/mnist-gb" --set model.spot_check=true \
  --set model.visualize=true --set model.num_pretrain_epochs=2
.venv/bin/python tests/report/browser.py "$folder/mnist-gb" --screenshot docs/report.png --phone docs/report-phone.png
"$weft" train -n 4 examples/experiments/mnist_tuned.yaml --out "$folder/mnist-tuned"
.venv/bin/python tests/report/browser.py "$folder/mnist-tuned" --screenshot docs/run.png --phone docs/run-phone.png \
  --top 1300 --sections "Confusion matrix" Timeline Split
echo "test-report: passed; see docs/report.png, docs/report-phone.png, docs/run.png and docs/run-phone.png"
