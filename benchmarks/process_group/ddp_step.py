"""Time of a DistributedDataParallel step with 25 million parameters: backend weft against gloo.

mpirun -n 2 python benchmarks/process_group/ddp_step.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1]))
from timing import compare, report

WIDTH, LAYERS, BATCH = 1024, 24, 16


def step_on(group: Any) -> Callable[[], None]:
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(BATCH, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("weft")
    steps = {"weft": step_on(dist.group.WORLD), "gloo": step_on(dist.new_group(backend="gloo"))}
    times = compare(steps, calls=3, repeats=7)
    report(f"process_group/ddp_step/n{dist.get_world_size()}", times["weft"], "gloo", times["gloo"])


if __name__ == "__main__":
    main()
