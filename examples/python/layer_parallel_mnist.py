"""Trains a network of 64 residual layers on MNIST, with the layers spread over the ranks.

mpirun -n 2 python layer_parallel_mnist.py

Forward and backward passes are solved by multigrid over the layers. A few iterations leave a small error, the residual,
which does not affect training. With --levels 1 the layers run one after another, without error and without speed-up.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from weft import data

CHANNELS = 4
CLASSES = 10


class Layer(nn.Module):
    """The function that a residual step adds to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv(x))


class Network:
    """Opening and closing layers on rank 0, and between them the deep middle, of which each rank holds a part."""

    def __init__(self, comm: weft.Communicator, options: argparse.Namespace) -> None:
        solve = weft.Solve(iterations=options.iterations, skip_downcycle=True, relaxations={0: 0})
        torch.manual_seed(options.seed)  # the same weights for any number of ranks
        self.opening = nn.Sequential(nn.Conv2d(1, CHANNELS, 3, padding=1), nn.ReLU())
        self.middle = weft.LayerParallel(
            comm,
            lambda number: Layer(),
            steps=options.steps,
            levels=options.levels,
            cfactor=options.cfactor,
            forward=solve,
            backward=solve,
        )
        self.closing = nn.Sequential(nn.Flatten(), nn.Linear(CHANNELS * 28 * 28, CLASSES))

    def parameters(self) -> list[nn.Parameter]:
        """The parameters that this rank trains."""
        ends = [self.opening, self.closing] if self.middle.comm.rank == 0 else []
        return [parameter for part in (self.middle, *ends) for parameter in part.parameters()]

    def __call__(self, images: Tensor) -> Tensor:
        """Returns the scores on rank 0; on other ranks a zero from which backward starts."""
        x = self.middle.compose(self.opening, data.unit_floats(images))
        return self.middle.compose(self.closing, self.middle(x))


def train(network: Network, optimizer: torch.optim.Optimizer, batches: list[data.LabelledImages]) -> float:
    """Trains on the batches and returns the mean loss (on rank 0)."""
    total = 0.0
    for images, labels in batches:
        optimizer.zero_grad()
        loss = network.middle.compose(F.cross_entropy, network(images), labels)
        weft.backward(loss)
        optimizer.step()
        total += loss.item()
    return total / len(batches)


@torch.no_grad()
def accuracy(network: Network, test: data.LabelledImages, batch: int) -> float:
    """Returns the fraction of correctly classified images (on rank 0)."""
    correct = 0
    for images, labels in zip(test.images.split(batch), test.labels.split(batch)):
        scores = network(images)
        if scores.dim() == 2:
            correct += int((scores.argmax(1) == labels).sum())
    return correct / len(test.labels)


def residuals(network: Network) -> str:
    """Returns the last residuals of the forward and the backward solve; a single level has none."""
    known = [statistics.known[-1:] for statistics in network.middle.statistics]
    return " ".join(f"{value[0]:.1e}" if value else "none" for value in known)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=64, help="number of residual layers (default 64)")
    parser.add_argument("--levels", type=int, default=2, help="levels of the multigrid solver (default 2)")
    parser.add_argument("--cfactor", type=int, default=4, help="coarsening factor between levels (default 4)")
    parser.add_argument("--iterations", type=int, default=2, help="iterations of each solve (default 2)")
    parser.add_argument("--epochs", type=int, default=2, help="number of passes over the images (default 2)")
    parser.add_argument("--batch", type=int, default=50, help="images per mini-batch (default 50)")
    parser.add_argument("--images", type=int, default=4000, help="maximum number of training images (default 4000)")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate (default 0.05)")
    parser.add_argument("--seed", type=int, default=1, help="seed of weights and batches (default 1)")
    return parser.parse_args()


def main() -> None:
    options = parse()
    comm = weft.world()
    images = data.mnist()
    count = min(options.images, len(images.train.labels))
    # Select images spread evenly over the set.
    chosen = images.train.select(torch.linspace(0, len(images.train.labels) - 1, count).long())
    network = Network(comm, options)
    optimizer = torch.optim.SGD(network.parameters(), lr=options.rate, momentum=0.9)
    if comm.rank == 0:
        print(f"{options.steps} layers on {comm.size} ranks, {count} images", flush=True)
    for epoch in range(options.epochs):
        start = time.perf_counter()
        batches = data.shuffled_batches(count, epoch, size=options.batch, seed=options.seed)
        loss = train(network, optimizer, [chosen.select(batch) for batch in batches])
        left = residuals(network)
        recognised = accuracy(network, images.test, options.batch)
        if comm.rank == 0:
            print(
                f"epoch {epoch + 1}: loss {loss:.6f}, test accuracy {recognised:.3f}, "
                f"residuals forward and backward {left}, {time.perf_counter() - start:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
