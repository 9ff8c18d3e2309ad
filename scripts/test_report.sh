#!/usr/bin/env bash
# Opens a real run's report.html in headless Chromium, which it installs from the distribution where it is absent, and keeps
# a screenshot in docs/. Called by `make test-report`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset WEFT_DATA # the sample that make env installs
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
# The model with every part that a report can show: pre-training, reconstructions, stimuli.
"$weft" train -n 4 examples/experiments/mnist_distarray_gb.yaml --out "$folder/mnist-gb"
.venv/bin/python tests/report/browser.py "$folder/mnist-gb" --screenshot docs/report.png
echo "test-report: passed; see docs/report.png"
