"""Peak memory per rank in training: LayerParallel with C-point storage against a plain loop in one process.

mpirun -n 2 python benchmarks/layer_parallel/peak_memory.py
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
from pathlib import Path

import torch

import weft

sys.path.insert(0, str(Path(__file__).parents[1]))
from networks import BACKWARD, FORWARD, Convolutions, image_input, plain

STEPS = 64


def resident() -> float:
    """Returns the resident size in MiB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


class Peak:
    """Measures the growth of the resident size while the context is open, once per millisecond."""

    def __enter__(self) -> Peak:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # memory freed by the last measurement must not count as the baseline
        self.before = self.peak = resident()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self) -> None:
        while not self.stop.wait(0.001):
            self.peak = max(self.peak, resident())

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()
        self.peak = max(self.peak, resident()) - self.before


def main() -> None:
    torch.set_num_threads(1)
    world = weft.world()
    torch.manual_seed(1)
    layers = [Convolutions() for _ in range(STEPS)]
    x = image_input().repeat(4, 1, 1, 1)
    network = weft.LayerParallel(world, layers, levels=3, cfactor=4, forward=FORWARD, backward=BACKWARD)
    for _ in range(2):  # the first round fills the pools and caches of torch
        with Peak() as split:
            weft.backward(network(x).sum())
        with Peak() as serial:
            plain(layers, x).sum().backward()
    largest = world.all_reduce(torch.tensor(split.peak), "max").item()
    if world.rank == 0:
        name = f"layer_parallel/peak_memory/n{world.size}"
        figure = {"name": name, "value": round(largest, 1), "unit": "MiB", "peer": f"plain loop {serial.peak:.1f} MiB"}
        print(json.dumps({**figure, "ratio": round(largest / serial.peak, 3)}), flush=True)


if __name__ == "__main__":
    main()
