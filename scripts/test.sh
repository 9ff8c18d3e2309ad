#!/usr/bin/env bash
# Runs tests and prints "N passed, N failed" at the end: scripts/test.sh all|<preset>|package|lint [<mpi>]
#
#   all       the steps of `make test`: the selected build, the core of the MPICH build, the package, lint
#   <preset>  one build (release, mpich, system, asan, tsan) and its ctest tests
#
# Every step runs even if an earlier one failed. The exit status is 0 if all passed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=${JOBS:-$(nproc)}
venv=$PWD/.venv
passed=0
failed=0
failures=()

announce() { printf '\n== %s ==\n' "$*"; }

# record <name> <status>: counts a step that is a single test.
record() {
  if (($2 == 0)); then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    failures+=("$1")
  fi
}

# record_junit <name> <file>: adds the counts of ctest's JUnit file. Skipped tests are not counted.
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
  # One test more than there are cores: many tests wait for processes or timeouts, so a core would often be idle.
  ctest --test-dir "build/$preset" -j "$((jobs + 1))" --output-on-failure --no-tests=error --output-junit "$results"
  record_junit "$preset" "$results"
}

# run_other_mpi <mpi> [<preset>]: installs another MPI if necessary and tests a separate build against it.
run_other_mpi() {
  announce "env for $1"
  scripts/env.sh "$1" --extra || { record "$1 (env)" 1 && return; }
  run_preset "${2:-$1}"
}

# Installs the package as a user would, into a prefix instead of a new environment to avoid a second copy of torch. CXX is the
# name by which CMake calls the compiler, so that ccache reuses the objects of the build.
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
