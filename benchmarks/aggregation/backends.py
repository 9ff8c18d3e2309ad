"""One all_reduce of 16 MiB float32 over links of a limited rate: `sml` through weft-switch beside gloo, same links.

    sudo .venv/bin/python benchmarks/aggregation/backends.py [--workers 4 8] [--rate 100]

Hosts are network namespaces (scripts/network_namespaces.sh). One JSON line a figure: seconds of the slowest worker, and
the bytes that worker 0 sent; the ratio is gloo's time over ours.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMESPACES = ROOT / "scripts" / "network_namespaces.sh"
SWITCH = ROOT / "build" / os.environ.get("WEFT_PRESET", "release") / "bin" / "weft-switch"
ELEMENTS = (16 << 20) // 4
ADDRESS = "10.77.0"


def sent_bytes() -> int:
    return int(Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())


def work(backend: str, rank: int, size: int) -> None:
    """A worker, inside its namespace."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=f"tcp://{ADDRESS}.10:29500", rank=rank, world_size=size)
    dist.all_reduce(torch.ones(1024))  # connections are made, caches are warm
    dist.barrier()
    x = torch.full((ELEMENTS,), float(rank))
    before, start = sent_bytes(), time.perf_counter()
    dist.all_reduce(x)
    seconds, sent = time.perf_counter() - start, sent_bytes() - before
    assert (x == size * (size - 1) / 2).all(), "wrong sums"
    slowest = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(json.dumps({"seconds": slowest.item(), "sent": sent}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


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


def compare(size: int, rate: int) -> None:
    name = f"weft-bench-{os.getpid()}"
    # --segment: single packets, not bursts, cross the links, as they would cross a wire.
    subprocess.run([NAMESPACES, "up", name, str(size), "--rate", str(rate), "--segment"], check=True)
    listen = ["--listen", f"{ADDRESS}.1:48864", "--control", f"{ADDRESS}.1:50099", "--http", "off", "--open"]
    switch = subprocess.Popen([*inside(name, "switch"), str(SWITCH), *listen, "--log-level", "warn"])
    try:
        gloo, ours = measure("gloo", name, size), measure("sml", name, size)
    finally:
        switch.send_signal(signal.SIGTERM)
        switch.wait()
        subprocess.run([NAMESPACES, "down", name], check=True)
    for backend, figures in (("gloo", gloo), ("sml", ours)):
        line = {
            "name": f"aggregation/backends/{backend}/{size}",
            "value": round(figures["seconds"], 3),
            "unit": "s",
            "peer": f"gloo {gloo['seconds']:.3f} s; {figures['sent'] / 1e6:.1f} MB sent by worker 0, {rate} Mbit/s",
            "ratio": round(gloo["seconds"] / figures["seconds"], 3),
        }
        print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--rate", type=int, default=100, help="Mbit/s of each link, either way (100)")
    parser.add_argument("--worker", metavar="BACKEND", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options.worker, options.rank, options.workers[0])
    if subprocess.run([NAMESPACES, "possible"], check=False).returncode != 0:
        raise SystemExit("backends: this machine does not permit network namespaces")
    for size in options.workers:
        compare(size, options.rate)


if __name__ == "__main__":
    main()
