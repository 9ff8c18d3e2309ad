"""Compares the backends sml, gloo and weft: throughput of all_reduce of float32, and CPU time per packet of sml.

    sudo .venv/bin/python benchmarks/aggregation/backends.py [--workers 2 4] [--rates 0 100 1000] [--table]

A rate of 0 is the loopback interface, on which weft and sml use shared memory. Other rates are links in Mbit/s between
network namespaces (scripts/network_namespaces.sh), on which weft uses TCP. The backends take turns in the same
processes. Prints one JSON line per figure, or a table. A time is the median over repeats of the slowest worker's mean.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
NAMESPACES = ROOT / "scripts" / "network_namespaces.sh"
SWITCH = ROOT / "build" / os.environ.get("WEFT_PRESET", "release") / "bin" / "weft-switch"
SIZES = [1 << 10, 64 << 10, 1 << 20, 16 << 20]  # bytes
BACKENDS = ["sml", "gloo", "weft"]
ADDRESS = "10.77.0"
# TCP only, as between hosts: all ranks have the same host name and would use shared memory. The launcher runs in the
# switch's namespace, where the ranks can reach it.
OVER_TCP = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,self",
    "OMPI_MCA_btl_tcp_if_include": f"{ADDRESS}.0/24",
    "OMPI_MCA_coll": "^sm,han,xhc",
    "PMIX_MCA_ptl_base_remote_connections": "1",
    "PMIX_MCA_ptl_base_if_include": f"{ADDRESS}.0/24",
    "PRTE_MCA_ptl_base_remote_connections": "1",
    "PRTE_MCA_ptl_base_if_include": f"{ADDRESS}.0/24",
}


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


class Sums:
    """Repeated sums of vectors of one size, each with its own memory: sums in place would grow and overflow."""

    def __init__(self, size: int, calls: int, switch: int) -> None:
        self.values = torch.randn(size // 4)
        self.vectors = [torch.empty_like(self.values) for _ in range(calls)]
        self.switch = switch

    def run(self, group: Any) -> tuple[float, float, float]:
        """Per sum: seconds of the slowest rank, CPU seconds of this rank, CPU seconds of the switch."""
        import torch.distributed as dist

        import weft

        for vector in self.vectors:
            vector.copy_(self.values)
        weft.world().barrier()
        switch, own, start = cpu_seconds(self.switch), time.process_time(), time.perf_counter()
        for vector in self.vectors:
            dist.all_reduce(vector, group=group)
        seconds, own, switch = time.perf_counter() - start, time.process_time() - own, cpu_seconds(self.switch) - switch
        slowest = weft.world().all_reduce(torch.tensor(seconds), "max").item()
        calls = len(self.vectors)
        return slowest / calls, own / calls, switch / calls


def measure(size: int, groups: dict[str, Any], rate: int, switch: int, most_repeats: int) -> dict[str, float]:
    import weft

    expected = 2 * 8e-6 * size / rate if rate else size / 5e8
    sums = Sums(size, max(1, min(100, int(0.1 / max(expected, 1e-3)))), switch)
    repeats = min(most_repeats, 15 if expected < 0.05 else 5 if expected < 1 else 3)  # slow links vary less
    samples: dict[str, list[tuple[float, float, float]]] = {backend: [] for backend in groups}
    packets = 0
    for repeat in range(repeats + 1):
        for backend, group in groups.items():
            before = weft.sml.statistics()["switch.packets_sent"]
            sample = sums.run(group)
            if repeat:  # the first repeat warms up
                samples[backend].append(sample)
                packets += weft.sml.statistics()["switch.packets_sent"] - before
    figures = {backend: statistics.median(seconds for seconds, _, _ in all_) for backend, all_ in samples.items()}
    figures["packets"] = packets / repeats / len(sums.vectors)
    figures["worker_cpu"] = statistics.median(own for _, own, _ in samples["sml"]) / figures["packets"]
    # The switch receives the packets of all workers.
    received = figures["packets"] * weft.world().size
    figures["switch_cpu"] = statistics.median(cpu for _, _, cpu in samples["sml"]) / received
    return figures


def work(store: str, rate: int, switch: int, repeats: int) -> None:
    """A rank under mpirun."""
    import torch.distributed as dist

    import weft

    world = weft.world()
    torch.manual_seed(world.rank)
    dist.init_process_group("sml", init_method=f"tcp://{store}", rank=world.rank, world_size=world.size)
    groups = {"sml": None, "gloo": dist.new_group(backend="gloo"), "weft": dist.new_group(backend="weft")}
    for size in SIZES:
        figures = measure(size, groups, rate, switch, repeats)
        if world.rank == 0:
            print(json.dumps({"bytes": size, **figures}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def inside(name: str, host: str) -> list[str]:
    return ["ip", "netns", "exec", f"{name}-{host}"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def network(size: int, rate: int) -> Iterator[tuple[str, str, list[str], list[str]]]:
    """Yields the addresses of the switch and the store, and the prefixes of commands for the switch and a rank."""
    if rate == 0:
        yield "127.0.0.1", f"127.0.0.1:{free_port()}", [], []
        return
    name = f"weft-bench-{os.getpid()}"
    # --segment: single packets instead of bursts cross the links, as on a wire.
    subprocess.run([NAMESPACES, "up", name, str(size), "--rate", str(rate), "--segment"], check=True)
    try:
        enter = f'exec ip netns exec {name}-w$OMPI_COMM_WORLD_RANK "$@"'
        yield f"{ADDRESS}.1", f"{ADDRESS}.10:29500", inside(name, "switch"), ["bash", "-c", enter, "rank"]
    finally:
        subprocess.run([NAMESPACES, "down", name], check=True)


def compare(size: int, rate: int, repeats: int) -> list[dict[str, float]]:
    """Figures for each vector size."""
    with network(size, rate) as (address, store, in_switch, in_rank):
        control = free_port()
        listen = ["--listen", f"{address}:48864", "--control", f"{address}:{control}", "--http", "off"]
        command = [str(SWITCH), *listen, *([] if rate == 0 else ["--open"]), "--log-level", "warn"]
        switch = subprocess.Popen([*in_switch, *command])  # ip netns exec replaces itself
        try:
            environment = {
                **os.environ,
                **(OVER_TCP if rate else {}),
                "GLOO_SOCKET_IFNAME": "eth0" if rate else "lo",
                "OMP_NUM_THREADS": "1",
                "WEFT_SML_CONTROLLER_IP": address,
                "WEFT_SML_CONTROLLER_PORT": str(control),
            }
            options = ["--rates", str(rate), "--repeats", str(repeats), "--switch", str(switch.pid)]
            worker = [sys.executable, __file__, "--worker", store, *options]
            launcher = [str(ROOT / "scripts" / "mpirun"), "-n", str(size)]
            ended = subprocess.run(
                [*in_switch, *launcher, *in_rank, *worker],
                env=environment, stdout=subprocess.PIPE, text=True, timeout=600, check=True,
            )  # fmt: skip
        finally:
            switch.send_signal(signal.SIGTERM)
            switch.wait()
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


def link_name(rate: int) -> str:
    return f"{rate}mbit" if rate else "loopback"


def report(size: int, rate: int, figures: dict[str, float]) -> None:
    name = f"aggregation/backends/{link_name(rate)}/n{size}/{figures['bytes']}"
    for backend in BACKENDS:
        line = {
            "name": f"{name}/{backend}",
            "value": round(1e6 * figures[backend], 1),
            "unit": "us",
            "peer": f"gloo {1e6 * figures['gloo']:.1f} us",
            "ratio": round(figures["gloo"] / figures[backend], 3),
        }
        print(json.dumps(line), flush=True)
    for role, other in (("worker", "switch"), ("switch", "worker")):
        mine, others = figures[f"{role}_cpu"], figures[f"{other}_cpu"]
        line = {
            "name": f"{name}/{role}_cpu_per_packet",
            "value": round(1e6 * mine, 2),
            "unit": "us",
            "peer": f"{other} {1e6 * others:.2f} us; {figures['packets']:.0f} packets per worker and sum",
            "ratio": round(mine / others, 3),
        }
        print(json.dumps(line), flush=True)


def print_row(size: int, rate: int, figures: dict[str, float]) -> None:
    bytes_ = int(figures["bytes"])
    amount = f"{bytes_ >> 20} MiB" if bytes_ >= 1 << 20 else f"{bytes_ >> 10} KiB"
    rates = " | ".join(f"{bytes_ / figures[backend] / 1e6:.3g}" for backend in BACKENDS)
    print(
        f"| {f'{rate} Mbit/s' if rate else 'loopback'} | {size} | {amount} | {rates} "
        f"| {figures['gloo'] / figures['sml']:.2f} | {figures['packets']:.0f} "
        f"| {1e6 * figures['worker_cpu']:.1f} | {1e6 * figures['switch_cpu']:.1f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4], help="numbers of workers (default 2 4)")
    parser.add_argument(
        "--rates", type=int, nargs="+", default=[0, 100, 1000],
        help="rates of each link in Mbit/s, per direction; 0 is the loopback interface (default 0 100 1000)",
    )  # fmt: skip
    parser.add_argument("--repeats", type=int, default=15, help="maximum number of measurements (default 15)")
    parser.add_argument("--table", action="store_true", help="print a table with throughput in MB/s")
    parser.add_argument("--worker", metavar="STORE", help=argparse.SUPPRESS)
    parser.add_argument("--switch", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.worker:
        return work(options.worker, options.rates[0], options.switch, options.repeats)
    if any(options.rates) and subprocess.run([NAMESPACES, "possible"], check=False).returncode != 0:
        raise SystemExit("backends: this machine does not permit network namespaces; use --rates 0")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("backends: terminated"))  # namespaces outlive a killed process
    if options.table:
        backends = " | ".join(f"{backend}, MB/s" for backend in BACKENDS)
        print(f"| link | workers | vector | {backends} | gloo / sml (time) | packets | worker, µs | switch, µs |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for rate in options.rates:
        for size in options.workers:
            for figures in compare(size, rate, options.repeats):
                (print_row if options.table else report)(size, rate, figures)


if __name__ == "__main__":
    main()
