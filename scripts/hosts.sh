#!/usr/bin/env bash
# Simulates the hosts of a cluster on one machine, so that MPI starts daemons on them and uses TCP between them.
#
#   scripts/hosts.sh up <name> <hosts> [--loss <percent>] [--rate <Mbit/s>]
#   scripts/hosts.sh mpirun <name> <ranks per host> <program> [<argument>…]
#   scripts/hosts.sh on <name> <host> <program> [<argument>…]
#   scripts/hosts.sh link <name> <host> up|down
#   scripts/hosts.sh down <name>
#   scripts/hosts.sh possible        exits with 0 if this machine permits the namespaces
#
# The hosts are named <name>-0, <name>-1, …. Each has its own host name, network (scripts/network_namespaces.sh), processes,
# System V IPC and /dev/shm; they share the files. `mpirun` runs on the login host <name>-login, which has no ranks. It passes
# variables WEFT_*, OMP_* and PYTHON* to the ranks. `link` connects or disconnects a host.
set -euo pipefail
scripts=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
state=/run/weft-hosts

start_host() {
  local name=$1 host=$1-$2 ready=$state/$1-$2.ready
  # The first process of the namespaces holds them.
  setsid ip netns exec "$name-w$2" unshare --uts --ipc --mount --pid --fork --kill-child --mount-proc bash -c '
    hostname "$1" && mount --bind "$2" /etc/hosts && mount -t tmpfs tmpfs /dev/shm && touch "$3" && exec sleep infinity
  ' start_host "$host" "$state/$name.hosts" "$ready" </dev/null >/dev/null 2>&1 &
  local keeper=$!
  for _ in {1..100}; do
    [[ -e $ready ]] && break
    sleep 0.05
  done
  rm "$ready"
  pgrep -P "$keeper" >"$state/$host.init"
}

up() {
  local name=$1 hosts=$2 host
  mkdir -p "$state"
  "$scripts/network_namespaces.sh" up "$name" "$hosts" "${@:3}"
  {
    echo "127.0.0.1 localhost"
    echo "10.77.0.1 $name-login"
    for ((host = 0; host < hosts; host++)); do echo "10.77.0.$((10 + host)) $name-$host"; done
  } >"$state/$name.hosts"
  for ((host = 0; host < hosts; host++)); do start_host "$name" "$host" || { down "$name" && return 1; }; done
}

# Killing the first process of a namespace ends all others. unshare ignores SIGTERM.
down() {
  local name=$1 init
  for init in "$state/$name"-*.init; do
    [[ -e $init ]] && kill -KILL "$(cat "$init")" 2>/dev/null || true
  done
  rm -f "$state/$name".hosts "$state/$name"-*.init
  "$scripts/network_namespaces.sh" down "$name"
}

# Runs a command in all namespaces of a host.
on_host() { exec nsenter --target "$(cat "$state/$1.init")" --all -- "${@:2}"; }

# Open MPI's launcher calls `agent <host> <shell command>` as it would call ssh.
agent() { on_host "$1" /bin/bash -c "${*:2}"; }

run_mpi() {
  local name=$1 per_host=$2 file hosts=() variable forwarded=()
  shift 2
  for file in "$state/$name"-*.init; do hosts+=("$(basename "$file" .init):$per_host"); done
  while read -r variable; do forwarded+=(-x "$variable"); done < <(compgen -e | grep -E '^(WEFT|OMP|PYTHON)_?')
  export PRTE_MCA_plm_ssh_agent="$scripts/hosts.sh agent"
  exec ip netns exec "$name-switch" unshare --uts bash -c 'hostname "$1" && exec "${@:2}"' run_mpi "$name-login" \
    "$scripts/mpirun" -n $((per_host * ${#hosts[@]})) --host "$(IFS=, && echo "${hosts[*]}")" \
    --map-by "ppr:$per_host:node:oversubscribe" "${forwarded[@]}" "$@"
}

possible() {
  local name=weft-probe-$$
  "$scripts/network_namespaces.sh" possible && up "$name" 1 && (on_host "$name-0" true)
  local status=$?
  down "$name"
  return $status
}

case ${1:-} in
  up) up "${@:2}" ;;
  down) down "$2" ;;
  mpirun) run_mpi "${@:2}" ;;
  on) on_host "$2-$3" "${@:4}" ;;
  agent) agent "${@:2}" ;;
  link) ip netns exec "$2-switch" ip link set "p$3" "$4" ;;
  possible) possible >/dev/null 2>&1 ;;
  *) sed -n '2,14s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
