"""Compares torch's allocator, the pool, and malloc tuned to keep its pages, on a training step of two convolutions.

python benchmarks/memory/allocator.py [--sizes 64 256] [--batch 32] [--repeats 5]

Runs each allocator in a separate process, because malloc's settings cannot be reverted. Prints the wall-clock and
processor time of a step, its page faults, and the peak memory of the process.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import resource
import statistics
import subprocess
import sys
import time

import torch
from torch import nn

import weft

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def use(allocator: str) -> None:
    if allocator == "pool":
        weft.memory.pool()
    elif allocator == "malloc":
        libc = ctypes.CDLL(None)
        for setting in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            if libc.mallopt(setting, 2**31 - 1) != 1:
                raise RuntimeError("mallopt failed")


def measure(allocator: str, size: int, batch: int, repeats: int) -> dict[str, float]:
    use(allocator)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1))
    x = torch.randn(batch, 3, size, size)

    def step() -> None:
        net(x).sum().backward()
        net.zero_grad()

    for _ in range(2):
        step()
    clock, processor = [], []
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(repeats):
        start, used = time.perf_counter(), time.process_time()
        step()
        clock.append((time.perf_counter() - start) * 1e3)
        processor.append((time.process_time() - used) * 1e3)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "step": statistics.median(clock),
        "processor time": statistics.median(processor),
        "page faults": (usage.ru_minflt - faults) / repeats,
        "memory": usage.ru_maxrss / 1024,
    }


UNITS = {"step": "ms", "processor time": "ms", "page faults": "per step", "memory": "MiB"}


def compare(size: int, batch: int, repeats: int) -> None:
    figures = {}
    for allocator in ("torch", "pool", "malloc"):
        command = [sys.executable, __file__, "--allocator", allocator, "--sizes", str(size)]
        command += ["--batch", str(batch), "--repeats", str(repeats)]
        figures[allocator] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for allocator in ("pool", "malloc"):
        for what, unit in UNITS.items():
            value, peer = figures[allocator][what], figures["torch"][what]
            name = f"memory/convolution/{batch}x3x{size}x{size}/{allocator}/{what}"
            ratio = round(value / peer, 3) if peer else None
            peer_text = f"torch {peer:.1f} {unit}"
            print(json.dumps({"name": name, "value": round(value, 3), "unit": unit, "peer": peer_text, "ratio": ratio}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 256], help="image sizes (default 64 256)")
    parser.add_argument("--batch", type=int, default=32, help="images per batch (default 32)")
    parser.add_argument("--repeats", type=int, default=5, help="number of measured steps (default 5)")
    parser.add_argument(
        "--allocator", choices=["torch", "pool", "malloc"], help="measure only this allocator, in this process"
    )
    given = parser.parse_args()
    for size in given.sizes:
        if given.allocator:
            print(json.dumps(measure(given.allocator, size, given.batch, given.repeats)))
        else:
            compare(size, given.batch, given.repeats)


if __name__ == "__main__":
    main()
