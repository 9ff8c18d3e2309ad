#!/usr/bin/env bash
# Checks formatting, types and layering of all files in the repository: scripts/lint.sh [--fix]. Skips tools that are missing.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PWD/.venv/bin:$PATH
fix=${1:-}
status=0

check() {
  echo "lint: $1"
  "$@" || status=1
}

has() { command -v "$1" >/dev/null || { echo "lint: $1 not found, skipped" && false; }; }

mapfile -t cpp < <(git ls-files --cached --others --exclude-standard '*.cpp' '*.h')
mapfile -t python < <(git ls-files --cached --others --exclude-standard '*.py' '*.pyi')

if has clang-format && ((${#cpp[@]})); then
  if [[ $fix == --fix ]]; then
    clang-format -i "${cpp[@]}"
  else
    check clang-format --dry-run -Werror "${cpp[@]}"
  fi
fi
if has ruff && ((${#python[@]})); then
  if [[ $fix == --fix ]]; then
    ruff check --quiet --fix "${python[@]}"
    ruff format --quiet "${python[@]}"
  else
    check ruff check --quiet "${python[@]}"
    check ruff format --quiet --check "${python[@]}"
  fi
fi
if has mypy && [[ -f python/weft/__init__.py ]]; then
  check mypy
fi
check python3 scripts/check_layers.py
if [[ $fix != --fix ]] && has clang-tidy; then check scripts/tidy.sh; fi
exit $status
