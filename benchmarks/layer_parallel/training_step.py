"""Forward and backward of deep residual networks in Python: a plain loop over the layers against LayerParallel.

mpirun -n 2 python benchmarks/layer_parallel/training_step.py [--pipeline]

With --pipeline, it measures only the pipeline, on convolutions with several batch sizes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import weft

sys.path.insert(0, str(Path(__file__).parents[1]))
from networks import BACKWARD, FORWARD, Convolutions, Dense, dense_input, image_input, plain
from timing import compare, report


def measure(
    name: str, make: Callable[[], nn.Module], steps: int, x: Tensor, only: str = "", calls: int = 3, repeats: int = 11
) -> None:
    """Measures the plain loop and the alternatives whose names start with ``only``."""
    world = weft.world()
    alone = world.split(world.rank)
    torch.manual_seed(1)
    layers = [make() for _ in range(steps)]
    options = {"levels": 3, "cfactor": 4, "forward": FORWARD, "backward": BACKWARD}
    serial = weft.LayerParallel(alone, layers, levels=1)
    one_rank = weft.LayerParallel(alone, layers, **options)
    all_ranks = weft.LayerParallel(world, layers, **options)
    pipeline = weft.LayerParallel(world, layers, solver="pipeline", micro_batches=8)

    def train(network: Callable[[Tensor], Tensor]) -> None:
        weft.backward(network(x).sum())
        for layer in layers:
            layer.zero_grad()

    def train_1f1b() -> None:
        weft.backward(pipeline.loss(torch.sum, x, reduction="sum"))
        for layer in layers:
            layer.zero_grad()

    def on_first(network: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        return lambda: train(network) if world.rank == 0 else None

    alternatives = {
        "plain": on_first(lambda x: plain(layers, x)),
        "serial": on_first(serial),
        "multigrid/n1": on_first(one_rank),
        f"multigrid/n{world.size}": lambda: train(all_ranks),
        f"pipeline/n{world.size}": lambda: train(pipeline),
        f"pipeline_1f1b/n{world.size}": train_1f1b,
    }
    alternatives = {kind: run for kind, run in alternatives.items() if kind == "plain" or kind.startswith(only)}
    times = compare(alternatives, calls, repeats)
    for kind in list(times)[1:]:
        report(f"layer_parallel/{name}/{steps}/python/{kind}", times[kind], "plain loop", times["plain"])


def main() -> None:
    torch.set_num_threads(1)
    if "--pipeline" in sys.argv[1:]:
        for batch in (50, 100, 200):  # micro-batches of 6, 12 and 25 images
            x = image_input(batch)
            measure(f"conv_batch{batch}", Convolutions, 32, x, only="pipeline", calls=1, repeats=7)
        return
    measure("dense", Dense, 128, dense_input())
    measure("dense", Dense, 512, dense_input())
    measure("conv", Convolutions, 32, image_input())


if __name__ == "__main__":
    main()
