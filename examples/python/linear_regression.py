"""Data-parallel linear regression: every rank holds some of the points, all ranks get the same fit.

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
    """y = 2 - 3 x + 0.5 x^2 with some noise that is not random, so that any program can make the same points."""
    i = torch.arange(rank, POINTS, ranks, dtype=torch.float64)
    x = i / (POINTS - 1) * 2 - 1
    noise = torch.sin(i * 12.9898) * 0.1
    return torch.stack([torch.ones_like(x), x, x * x], 1), 2 - 3 * x + 0.5 * x * x + noise


def main() -> None:
    comm = weft.world()
    features, targets = points(comm.rank, comm.size)
    weights = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    for _ in range(STEPS):
        shared = comm.all_reduce(weights, "mean")  # so that the ranks' weights cannot drift apart
        loss = (features @ shared - targets).square().sum() / POINTS
        weft.backward(loss)  # the gradient of the sum of all ranks' losses
        with torch.no_grad():
            error = comm.all_reduce(loss.detach())
            weights -= RATE * comm.size * weights.grad  # each rank holds 1/n of the mean's gradient
            weights.grad = None
    if comm.rank == 0:
        fit = "{:.9f} {:.9f} {:.9f}".format(*weights.tolist())
        print(f"Python  {comm.size} ranks: {fit}  mean squared error {error.item():.6f}", flush=True)
        all_features, all_targets = (t.numpy() for t in points(0, 1))
        exact = np.linalg.lstsq(all_features, all_targets, rcond=None)[0]
        residual = np.square(all_features @ exact - all_targets).mean()
        print("numpy   exact:   {:.9f} {:.9f} {:.9f}".format(*exact), f" mean squared error {residual:.6f}")
        print(f"largest difference of Python's fit: {np.abs(exact - weights.detach().numpy()).max():.2e}")


if __name__ == "__main__":
    main()
