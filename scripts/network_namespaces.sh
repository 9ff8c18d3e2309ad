#!/usr/bin/env bash
# Simulates hosts on one machine: network namespaces connected by veth pairs and a bridge. For tests with real packets.
#
#   scripts/network_namespaces.sh up <name> <workers> [--loss <percent>] [--rate <Mbit/s>] [--segment]
#   scripts/network_namespaces.sh down <name>
#   scripts/network_namespaces.sh possible        exits with 0 if this machine permits namespaces
#
# up creates the namespace <name>-switch (10.77.0.1), which contains the bridge and has no rate limit, and the namespaces
# <name>-w0, <name>-w1, … (10.77.0.10, 10.77.0.11, …). --loss and --rate apply to each worker's link in both directions.
# --segment (implied by --loss) sends single packets instead of GSO bursts over the links.
set -euo pipefail

in_switch() { ip netns exec "$name-switch" "$@"; }
in_worker() { ip netns exec "$name-w$1" "${@:2}"; }

# Prints a classic BPF program that drops a share of the packets: it passes (0) a packet if a random word exceeds the
# threshold and drops (2) it otherwise.
loss_program() {
  local threshold
  threshold=$(awk -v percent="$1" 'BEGIN { printf "%.0f", percent / 100 * 4294967295 }')
  echo "4,32 0 0 4294963256,37 0 1 $threshold,6 0 0 0,6 0 0 2"
}


add_worker() {
  local worker=$1 port=p$1
  ip netns add "$name-w$worker"
  in_switch ip link add "$port" type veth peer name eth0 netns "$name-w$worker"
  in_switch ip link set "$port" master bridge up
  in_worker "$worker" ip address add "10.77.0.$((10 + worker))/24" dev eth0
  in_worker "$worker" ip link set lo up
  in_worker "$worker" ip link set eth0 up
  if [[ -n $segment ]]; then
    in_switch ip link set "$port" gso_max_segs 1
    in_worker "$worker" ip link set eth0 gso_max_segs 1
  fi
  if [[ -n $rate ]]; then
    in_switch tc qdisc add dev "$port" root tbf rate "${rate}mbit" burst 64kb limit 4mb
    in_worker "$worker" tc qdisc add dev eth0 root tbf rate "${rate}mbit" burst 64kb limit 4mb
  fi
  if [[ -n $loss && $loss != 0 ]]; then
    in_switch tc qdisc add dev "$port" clsact
    in_switch tc filter add dev "$port" ingress bpf direct-action bytecode "$(loss_program "$loss")"
    in_worker "$worker" tc qdisc add dev eth0 clsact
    in_worker "$worker" tc filter add dev eth0 ingress bpf direct-action bytecode "$(loss_program "$loss")"
  fi
}

up() {
  local workers=$1 worker
  ip netns add "$name-switch"
  in_switch ip link set lo up
  in_switch ip link add bridge type bridge
  in_switch ip address add 10.77.0.1/24 dev bridge
  in_switch ip link set bridge up
  for ((worker = 0; worker < workers; worker++)); do add_worker "$worker"; done
}

# Deleting a namespace also deletes its devices.
down() {
  local namespace
  for namespace in $(ip netns list | awk -v name="$name" 'index($1, name "-") == 1 { print $1 }'); do
    ip netns delete "$namespace"
  done
}

possible() {
  name=weft-probe-$$
  loss=1 rate=100 segment=yes
  trap down EXIT
  up 1 >/dev/null 2>&1
}

command=${1:-}
name=${2:-}
loss='' rate='' segment=''
case $command in
  possible) possible ;;
  down) down ;;
  up)
    workers=$3
    shift 3
    while (($#)); do
      case $1 in
        --loss) loss=$2 segment=yes && shift 2 ;;
        --rate) rate=$2 && shift 2 ;;
        --segment) segment=yes && shift ;;
        *) echo "network_namespaces: unknown option $1" >&2 && exit 2 ;;
      esac
    done
    up "$workers" || { down && exit 1; }
    ;;
  *) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
