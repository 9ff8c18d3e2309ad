"""Compares `sml` with gloo and Open MPI over TCP: one all_reduce of 16 MiB float32 over links of limited rate.

    sudo .venv/bin/python benchmarks/aggregation/backends.py [--workers 4 8] [--rate 100]

Hosts are network namespaces (scripts/network_namespaces.sh). One JSON line a figure: seconds of the slowest worker, and
the bytes that worker 0 sent and received; the ratio is gloo's time over that one's.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
NAMESPACES = ROOT / "scripts" / "network_namespaces.sh"
SWITCH = ROOT / "build" / os.environ.get("WEFT_PRESET", "release") / "bin" / "weft-switch"
ELEMENTS = (16 << 20) // 4
ADDRESS = "10.77.0"


def link_bytes() -> tuple[int, int]:
    """Bytes sent and received over this worker's link."""
    counts = Path("/sys/class/net/eth0/statistics")
    return int((counts / "tx_bytes").read_text()), int((counts / "rx_bytes").read_text())


def time_sum(
    size: int, all_reduce: Callable[[torch.Tensor], object], slowest: Callable[[float], float]
) -> dict[str, float]:
    """Figures of the median of five sums; the time of a sum is that of its slowest worker."""
    figures = []
    for _ in range(5):
        x = torch.ones(ELEMENTS)
        slowest(0)  # wait for all workers
        (sent, received), start = link_bytes(), time.perf_counter()
        all_reduce(x)
        seconds = time.perf_counter() - start
        sent, received = link_bytes()[0] - sent, link_bytes()[1] - received
        assert (x == size).all(), "wrong sums"
        figures.append({"seconds": slowest(seconds), "sent": sent, "received": received})
    return sorted(figures, key=lambda figure: figure["seconds"])[2]


def work(backend: str, rank: int, size: int) -> None:
    """A worker of torch.distributed, inside its namespace."""
    import torch.distributed as dist

    def slowest(seconds: float) -> float:
        x = torch.tensor([seconds], dtype=torch.float64)
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        return x.item()

    dist.init_process_group(backend, init_method=f"tcp://{ADDRESS}.10:29500", rank=rank, world_size=size)
    dist.all_reduce(torch.ones(1024))  # opens connections and warms up caches
    figures = time_sum(size, dist.all_reduce, slowest)
    if rank == 0:
        print(json.dumps(figures), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def work_for_mpi() -> None:
    """A rank of Open MPI."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    world.Allreduce(MPI.IN_PLACE, torch.ones(1024).numpy())
    figures = time_sum(
        world.size, lambda x: world.Allreduce(MPI.IN_PLACE, x.numpy()), lambda s: world.allreduce(s, MPI.MAX)
    )
    if world.rank == 0:
        print(json.dumps(figures), flush=True)


def inside(name: str, host: str) -> list[str]:
    return ["ip", "netns", "exec", f"{name}-{host}"]


def measure(backend: str, name: str, size: int) -> dict[str, float]:
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "1",
        "WEFT_SML_CONTROLLER_IP": f"{ADDRESS}.1",
        "WEFT_SML_PACKET_NUMEL": "320",
        "WEFT_SML_FALLBACK": "gloo",
    }
    script = [sys.executable, __file__, "--worker", backend]
    workers = [
        subprocess.Popen(
            [*inside(name, f"w{rank}"), *script, "--rank", str(rank), "--workers", str(size)],
            env=environment,
            stdout=subprocess.PIPE if rank == 0 else None,
            text=True,
        )
        for rank in range(size)
    ]
    output, _ = workers[0].communicate(timeout=300)
    if any(worker.wait() for worker in workers):
        raise SystemExit(f"backends: a worker of {backend} failed")
    return dict(json.loads(output.splitlines()[-1]))


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
    "OMP_NUM_THREADS": "1",
}


def measure_mpi(name: str, size: int) -> dict[str, float]:
    enter = f'exec ip netns exec {name}-w$OMPI_COMM_WORLD_RANK "$@"'
    launcher = [str(ROOT / "scripts" / "mpirun"), "-n", str(size), "bash", "-c", enter, "rank"]
    ended = subprocess.run(
        [*inside(name, "switch"), *launcher, sys.executable, __file__, "--worker", "mpi"],
        env={**os.environ, **OVER_TCP},
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def compare(size: int, rate: int) -> None:
    name = f"weft-bench-{os.getpid()}"
    # --segment: single packets instead of bursts cross the links, as on a wire.
    subprocess.run([NAMESPACES, "up", name, str(size), "--rate", str(rate), "--segment"], check=True)
    listen = ["--listen", f"{ADDRESS}.1:48864", "--control", f"{ADDRESS}.1:50099", "--http", "off", "--open"]
    switch = subprocess.Popen([*inside(name, "switch"), str(SWITCH), *listen, "--log-level", "warn"])
    try:
        results = {backend: measure(backend, name, size) for backend in ("gloo", "sml")}
        results["openmpi_tcp"] = measure_mpi(name, size)
    finally:
        switch.send_signal(signal.SIGTERM)
        switch.wait()
        subprocess.run([NAMESPACES, "down", name], check=True)
    gloo = results["gloo"]["seconds"]
    for backend, figures in results.items():
        crossed = f"{figures['sent'] / 1e6:.1f} MB sent and {figures['received'] / 1e6:.1f} MB received by worker 0"
        line = {
            "name": f"aggregation/backends/{backend}/{size}",
            "value": round(figures["seconds"], 3),
            "unit": "s",
            "peer": f"gloo {gloo:.3f} s; {crossed}, {rate} Mbit/s",
            "ratio": round(gloo / figures["seconds"], 3),
        }
        print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 8], help="numbers of workers (default 4 8)")
    parser.add_argument(
        "--rate", type=int, default=100, help="rate of each link in Mbit/s, per direction (default 100)"
    )
    parser.add_argument("--worker", metavar="BACKEND", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.worker == "mpi":
        return work_for_mpi()
    if options.worker:
        return work(options.worker, options.rank, options.workers[0])
    if subprocess.run([NAMESPACES, "possible"], check=False).returncode != 0:
        raise SystemExit("backends: this machine does not permit network namespaces")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("backends: terminated"))  # namespaces outlive a killed process
    for size in options.workers:
        compare(size, options.rate)


if __name__ == "__main__":
    main()
