"""Data-parallel linear regression: every rank holds a part of the points, and all ranks compute the same fit.

mpirun -n 2 python linear_regression.py
"""

from __future__ import annotations

import numpy as np
import torch

import weft

POINTS = 10_000
STEPS = 800
RATE = 0.2


def points(rank: int, ranks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and targets of y = 2 - 3 x + 0.5 x^2 with deterministic noise, reproducible in other languages."""
    i = torch.arange(rank, POINTS, ranks, dtype=torch.float64)
    x = i / (POINTS - 1) * 2 - 1
    noise = torch.sin(i * 12.9898) * 0.1
    return torch.stack([torch.ones_like(x), x, x * x], 1), 2 - 3 * x + 0.5 * x * x + noise


def main() -> None:
    comm = weft.world()
    features, targets = points(comm.rank, comm.size)
    weights = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    for _ in range(STEPS):
        shared = comm.all_reduce(weights, "mean")  # keeps the weights of all ranks equal
        loss = (features @ shared - targets).square().sum() / POINTS
        weft.backward(loss)  # the gradient of the sum of all ranks' losses
        with torch.no_grad():
            error = comm.all_reduce(loss.detach())
            weights -= RATE * comm.size * weights.grad  # each rank holds 1/n of the gradient of the mean
            weights.grad = None
    if comm.rank == 0:
        fit = "{:.9f} {:.9f} {:.9f}".format(*weights.tolist())
        print(f"Python  {comm.size} ranks: {fit}  mean squared error {error.item():.6f}", flush=True)
        all_features, all_targets = (t.numpy() for t in points(0, 1))
        exact = np.linalg.lstsq(all_features, all_targets, rcond=None)[0]
        residual = np.square(all_features @ exact - all_targets).mean()
        print("numpy   exact:   {:.9f} {:.9f} {:.9f}".format(*exact), f" mean squared error {residual:.6f}")
        print(f"largest difference between the two fits: {np.abs(exact - weights.detach().numpy()).max():.2e}")


if __name__ == "__main__":
    main()
