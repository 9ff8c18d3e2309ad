#!/usr/bin/env bash
# Runs tests and ends with the line "N passed, N failed": scripts/test.sh all|<preset>|package|lint [<mpi>]
#
#   all      what `make test` runs: the build in use, MPICH's core, the package, lint; the sanitizers and all of MPICH have
#            targets of their own
#   <preset> one build (release, mpich, system, asan, tsan) and its ctest tests
# Every step runs even if an earlier one failed; the exit status says whether any did.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=${JOBS:-$(nproc)}
venv=$PWD/.venv
passed=0
failed=0
failures=()

announce() { printf '\n== %s ==\n' "$*"; }

# record <name> <status>: a step that is one test
record() {
  if (($2 == 0)); then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    failures+=("$1")
  fi
}

# Adds the counts of a JUnit file that ctest wrote; skipped tests count as neither.
record_junit() {
  local counts name
  counts=$("$venv/bin/python" scripts/junit_counts.py "$2") || { record "$1 (no results)" 1 && return; }
  while read -r result name; do
    if [[ $result == passed ]]; then passed=$((passed + 1)); fi
    if [[ $result == failed ]]; then failed=$((failed + 1)) && failures+=("$1: $name"); fi
  done <<<"$counts"
}

run_preset() {
  local preset=$1 results=$PWD/build/$1/results.xml
  announce "$preset"
  scripts/build.sh "$preset" || { record "$preset (build)" 1 && return; }
  rm -f "$results"
  ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure --no-tests=error --output-junit "$results"
  record_junit "$preset" "$results"
}

# run_other_mpi <mpi> [<preset>]: an MPI beside the one in use, installed if need be, tested in a build of its own.
run_other_mpi() {
  announce "env for $1"
  scripts/env.sh "$1" --extra || { record "$1 (env)" 1 && return; }
  run_preset "${2:-$1}"
}

# The package as a user installs it. --prefix, not a new environment: torch need not be installed twice. The compiler under
# the name that CMake calls it by: ccache then finds what was compiled before.
run_package() {
  announce "pip install ."
  local prefix=$PWD/build/package
  rm -rf "$prefix"
  CXX=${CXX:-c++} "$venv/bin/pip" install --quiet --no-build-isolation --no-deps --ignore-installed --prefix "$prefix" . &&
    "$venv/bin/python" scripts/check_package.py "$prefix"
  record "pip install ." $?
}

run_lint() {
  announce "lint"
  scripts/lint.sh
  record lint $?
}

case ${1:-all} in
  all)
    mpi=${2:-openmpi}
    [[ $mpi == openmpi ]] && run_preset release || run_preset "$mpi"
    [[ $mpi == mpich ]] || run_other_mpi mpich mpich-core
    run_package
    run_lint
    ;;
  package) scripts/env.sh openmpi --extra && run_package ;;
  lint) run_lint ;;
  mpich | system) run_other_mpi "$1" ;;
  *) scripts/env.sh openmpi --extra && run_preset "$1" ;;
esac

echo
((failed == 0)) || printf 'failed: %s\n' "${failures[@]}"
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
