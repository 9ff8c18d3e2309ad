#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy: scripts/tidy.sh [<file>...]
#
# Without arguments it checks the sources of weft/ and apps/ that differ from the upstream branch, or from the last commit if
# there is no upstream. A clean checkout has no such files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/tidy
files=("$@")
if ((${#files[@]} == 0)); then
  base=$(git merge-base HEAD '@{upstream}' 2>/dev/null || git rev-parse HEAD)
  mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- 'weft/*.cpp' 'apps/*.cpp')
fi
((${#files[@]})) || { echo "tidy: no changed sources" && exit 0; }
# A compilation database without unity batches and without GCC's precompiled header, which clang cannot read.
[[ -f $build/compile_commands.json ]] ||
  cmake --preset release -B "$build" -DWEFT_FAST_BUILD=OFF -DWEFT_BUILD_TESTS=OFF -DWEFT_BUILD_BENCHMARKS=OFF >/dev/null
echo "tidy: ${#files[@]} files"
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "${JOBS:-$(nproc)}" .venv/bin/clang-tidy -p "$build" --quiet \
  --warnings-as-errors='*'
