"""Trains a deep residual network on MNIST by nested iteration: first a shallow network, then deeper ones.

mpirun -n 2 python nested_mnist.py [--epochs 4 2 1] ...

Each number after --epochs is a level. The last level has --steps layers, and each level before it half as many. Deeper
networks start with the weights and the optimizer's state of those before them. "--epochs 4" trains the deepest network
directly. The output counts step evaluations: layers times mini-batches, forward; backward takes as many.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from weft.multilevel import nested_iteration

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


class Training:
    """The layers before and after the deep network, the data, and the number of step evaluations."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.opening = nn.Sequential(nn.Conv2d(1, CHANNELS, 3, padding=1), nn.ReLU())
        self.closing = nn.Sequential(nn.Flatten(), nn.Linear(CHANNELS * 28 * 28, CLASSES))
        self.options = options
        train, self.test = data.mnist()
        self.count = min(options.images, len(train.labels))
        self.train = train.select(torch.linspace(0, len(train.labels) - 1, self.count).long())
        self.epochs = self.evaluations = 0

    def epoch(self, net: weft.LayerParallel, optimizer: torch.optim.Optimizer, level: int, epoch: int) -> None:
        """Collective. Trains for an epoch and prints the loss and the accuracy. Called by nested_iteration."""
        start = time.perf_counter()
        options, total = self.options, 0.0
        batches = data.shuffled_batches(self.count, self.epochs, size=options.batch, seed=options.seed)
        for batch in batches:
            images, labels = self.train.select(batch)
            optimizer.zero_grad()
            loss = net.loss(self._loss_of, net.compose(self._open, images), labels)
            weft.backward(loss)
            optimizer.step()
            total += loss.item()
        self.epochs += 1
        self.evaluations += len(batches) * net.total_layers
        recognised = self._accuracy(net)
        if net.comm.rank == 0:
            print(
                f"level {level}, {net.total_layers} layers, epoch {epoch + 1}: loss {total / len(batches):.6f}, test "
                f"accuracy {recognised:.3f}, {self.evaluations} step evaluations, {time.perf_counter() - start:.1f} s",
                flush=True,
            )

    def _open(self, images: Tensor) -> Tensor:
        return self.opening(data.unit_floats(images))

    def _loss_of(self, states: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.closing(states), labels)

    @torch.no_grad()
    def _accuracy(self, net: weft.LayerParallel) -> float:
        correct = 0
        for images, labels in zip(self.test.images.split(500), self.test.labels.split(500)):
            scores = net.compose(self.closing, net(net.compose(self._open, images)))
            if scores.dim() == 2:
                correct += int((scores.argmax(1) == labels).sum())
        return correct / len(self.test.labels)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=16, help="layers of the deepest network (default 16)")
    parser.add_argument("--epochs", type=int, nargs="+", default=[2, 1, 1], help="epochs per level (default 2 1 1)")
    parser.add_argument("--interpolation", default="linear", help="injection or linear (default linear)")
    parser.add_argument("--solver", default="pipeline", help="pipeline or mgrit (default pipeline)")
    parser.add_argument("--batch", type=int, default=50, help="images per mini-batch (default 50)")
    parser.add_argument("--images", type=int, default=4000, help="maximum number of training images (default 4000)")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate (default 0.05)")
    parser.add_argument("--seed", type=int, default=1, help="seed of weights and batches (default 1)")
    options = parser.parse_args()
    if options.steps % 2 ** (len(options.epochs) - 1):
        parser.error(f"--steps must be a multiple of {2 ** (len(options.epochs) - 1)} for {len(options.epochs)} levels")
    return options


def main() -> None:
    options = parse()
    comm = weft.world()
    torch.manual_seed(options.seed)  # the same weights for any number of ranks
    training = Training(options)
    shallow = options.steps // 2 ** (len(options.epochs) - 1)
    net = weft.LayerParallel(comm, lambda number: Layer(), steps=shallow, solver=options.solver)
    ends = [*training.opening.parameters(), *training.closing.parameters()] if comm.rank == 0 else []
    optimizer = torch.optim.SGD([{"params": [*net.parameters(), *ends]}], lr=options.rate, momentum=0.9)
    nested_iteration(net, optimizer, options.epochs, training.epoch, interpolation=options.interpolation)


if __name__ == "__main__":
    main()
