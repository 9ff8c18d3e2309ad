"""Prints the differences of LayerParallel's output and gradients from a plain loop, for docs/benchmarks.md.

python benchmarks/layer_parallel/convergence.py      (the numbers do not depend on the number of ranks)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import weft

sys.path.insert(0, str(Path(__file__).parents[1]))
from networks import Convolutions, Dense, dense_input, image_input, plain

STEPS = 64
ITERATIONS = (1, 2, 3, 4, 6)


def gradients(layers: list[nn.Module], y: Tensor) -> Tensor:
    weft.backward(y.square().sum())
    found = torch.cat([p.grad.flatten() for layer in layers for p in layer.parameters()])  # type: ignore[union-attr]
    for layer in layers:
        layer.zero_grad()
    return found


def errors(make: Callable[[], nn.Module], x: Tensor, levels: int, cfactor: int) -> list[str]:
    torch.manual_seed(1)
    layers = [make().double() for _ in range(STEPS)]
    expected = plain(layers, x)
    expected_gradients = gradients(layers, expected)
    cells = []
    for iterations in ITERATIONS:
        solve = weft.Solve(iterations=iterations, residual=False)
        y = weft.LayerParallel(weft.world(), layers, levels=levels, cfactor=cfactor, forward=solve, backward=solve)(x)
        output = (y - expected).norm() / expected.norm()
        gradient = (gradients(layers, y) - expected_gradients).norm() / expected_gradients.norm()
        cells.append(f"{output:.0e} / {gradient:.0e}")
    return cells


def main() -> None:
    torch.manual_seed(0)
    nets = {"dense": (Dense, dense_input().double()), "conv": (Convolutions, image_input()[:8].double())}
    print("| network | levels | cfactor | " + " | ".join(f"{n} iter." for n in ITERATIONS) + " |")
    print("|" + "---|" * (3 + len(ITERATIONS)))
    for name, (make, x) in nets.items():
        for levels, cfactor in ((2, 2), (2, 4), (2, 8), (3, 2), (3, 4)):
            print(
                f"| {name} | {levels} | {cfactor} | " + " | ".join(errors(make, x, levels, cfactor)) + " |", flush=True
            )


if __name__ == "__main__":
    main()
