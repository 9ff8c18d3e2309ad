#!/usr/bin/env bash
# Opens a real run's report.html in headless Chromium, which it installs from the distribution where it is absent, and keeps
# a screenshot in docs/. Called by `make test-report`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
run=$(mktemp -d)/mnist
trap 'rm -rf "$(dirname "$run")"' EXIT

if ! command -v chromium >/dev/null; then
  privilege=()
  [[ $(id -u) == 0 ]] || privilege=(sudo -n)
  echo "test-report: installing chromium"
  "${privilege[@]}" apt-get -qq update
  "${privilege[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium \
    fonts-dejavu-core >/dev/null
fi
scripts/mpirun -n 4 .venv/bin/python tests/report/train.py "$run"
.venv/bin/python tests/report/browser.py "$run" --screenshot docs/report.png
echo "test-report: passed; see docs/report.png"
