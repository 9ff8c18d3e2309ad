#!/usr/bin/env bash
# Tests weft with the real packages of requirements-integrations.txt. Called by `make test-integrations`.
#
# The packages go to build/integrations, an environment that also sees the packages of .venv. pip therefore regards torch as
# installed and never replaces it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=$PWD/build/integrations
site_packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

stamp=$venv/.requirements
hash=$(cat requirements.txt requirements-integrations.txt "$0" | sha256sum | cut -d' ' -f1)
if [[ ! -f $stamp || $(<"$stamp") != "$hash" ]]; then
  echo "test-integrations: installing requirements-integrations.txt into build/integrations (about 2 minutes)"
  rm -rf "$venv"
  .venv/bin/python -m venv "$venv"
  echo "import site; site.addsitedir('$(site_packages .venv)')" >"$(site_packages "$venv")/weft-environment.pth"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -c requirements.txt -r requirements-integrations.txt
  if [[ -d $(site_packages "$venv")/torch ]]; then
    echo "test-integrations: a package of requirements-integrations.txt replaced torch; pin a version that accepts" \
      "the torch of requirements.txt" >&2
    exit 1
  fi
  echo "$hash" >"$stamp"
fi
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider tests/integrations tests/python/integrations "$@"
