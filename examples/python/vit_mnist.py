"""Trains a vision transformer on MNIST, with its blocks spread over the ranks.

mpirun -n 2 python vit_mnist.py [--solver pipeline] ...

An image is a sequence of patches of 7 x 7 pixels. Each block of the transformer is a time step. The first and the last
block run exactly on rank 0; the solver evaluates those between them: one after another (serial), in micro-batches that
flow from rank to rank (pipeline, exact), or all at the same time by multigrid (mgrit, approximate).
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from weft import data
from weft.layer_parallel import BufferedNetwork, EncoderBlock

PATCH = 7
PATCHES = (28 // PATCH) ** 2
CLASSES = 10


class VisionTransformer:
    """The patch embedding and the classifier on rank 0; between them the blocks, of which each rank holds a part."""

    def __init__(self, comm: weft.Communicator, options: argparse.Namespace) -> None:
        torch.manual_seed(options.seed)  # the same weights for any number of ranks
        width = options.width
        self.patches = nn.Conv2d(1, width, PATCH, stride=PATCH)
        self.positions = nn.Embedding(PATCHES, width)
        self.classifier = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, CLASSES))
        self.blocks = BufferedNetwork(
            comm,
            lambda number: EncoderBlock(width, options.heads, 2 * width, options.dropout, "gelu"),
            steps=options.blocks,
            tf=options.tf,
            opening=1,
            closing=1,
            **solver_options(options),
        )
        self.first = comm.rank == 0

    def parameters(self) -> list[nn.Parameter]:
        """The parameters that this rank trains."""
        ends = [self.patches, self.positions, self.classifier] if self.first else []
        return [parameter for part in (self.blocks, *ends) for parameter in part.parameters()]

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Collective. Returns the mean loss on rank 0; a zero on other ranks."""
        return self.blocks.loss(self._loss_of, self._embedded(images), labels)

    def scores(self, images: Tensor) -> Tensor:
        """Collective. Returns the scores of all classes on rank 0; a zero on other ranks."""
        return self.blocks.middle.compose(self._classify, self.blocks(self._embedded(images)))

    def _embedded(self, images: Tensor) -> Tensor:
        return self.blocks.middle.compose(self._embed, data.unit_floats(images))

    def _embed(self, images: Tensor) -> Tensor:
        return self.patches(images).flatten(2).transpose(1, 2) + self.positions.weight

    def _classify(self, states: Tensor) -> Tensor:
        return self.classifier(states.mean(dim=1))

    def _loss_of(self, states: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self._classify(states), labels)


def solver_options(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the arguments of LayerParallel for the chosen solver."""
    if options.solver == "pipeline":
        return {"solver": "pipeline", "micro_batches": options.micro_batches}
    return {
        "levels": 1 if options.solver == "serial" else 2,
        "cfactor": options.cfactor,
        "forward": weft.Solve(iterations=options.iterations),
        "backward": weft.Solve(iterations=options.iterations),
    }


@torch.no_grad()
def accuracy(model: VisionTransformer, test: data.LabelledImages) -> float:
    """Collective. Returns the fraction of correctly classified images (on rank 0)."""
    model.blocks.eval()
    correct = 0
    for images, labels in zip(test.images.split(500), test.labels.split(500)):
        scores = model.scores(images)
        if scores.dim() == 2:
            correct += int((scores.argmax(1) == labels).sum())
    model.blocks.train()
    return correct / len(test.labels)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--solver", default="mgrit", choices=["serial", "pipeline", "mgrit"], help="default mgrit")
    parser.add_argument("--blocks", type=int, default=10, help="number of blocks (default 10)")
    parser.add_argument("--tf", type=float, default=2.5, help="end time; a step is tf / blocks (default 2.5)")
    parser.add_argument("--cfactor", type=int, default=2, help="coarsening factor of multigrid (default 2)")
    parser.add_argument("--iterations", type=int, default=1, help="iterations of each multigrid solve (default 1)")
    parser.add_argument("--micro-batches", type=int, help="of the pipeline (default four per rank)")
    parser.add_argument("--width", type=int, default=32, help="size of the states (default 32)")
    parser.add_argument("--heads", type=int, default=4, help="attention heads (default 4)")
    parser.add_argument("--dropout", type=float, default=0.0, help="fraction of dropped activations (default 0)")
    parser.add_argument("--epochs", type=int, default=4, help="number of passes over the images (default 4)")
    parser.add_argument("--batch", type=int, default=50, help="images per mini-batch (default 50)")
    parser.add_argument("--images", type=int, default=4000, help="maximum number of training images (default 4000)")
    parser.add_argument("--rate", type=float, default=2e-3, help="learning rate of Adam (default 0.002)")
    parser.add_argument("--seed", type=int, default=1, help="seed of weights, batches and dropout (default 1)")
    return parser.parse_args()


def main() -> None:
    options = parse()
    comm = weft.world()
    images = data.mnist()
    count = min(options.images, len(images.train.labels))
    # Select images spread evenly over the set.
    chosen = images.train.select(torch.linspace(0, len(images.train.labels) - 1, count).long())
    model = VisionTransformer(comm, options)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.rate)
    if comm.rank == 0:
        print(f"{options.blocks} blocks on {comm.size} ranks, {count} images, solver {options.solver}", flush=True)
    for epoch in range(options.epochs):
        start = time.perf_counter()
        total, batches = 0.0, data.shuffled_batches(count, epoch, size=options.batch, seed=options.seed)
        for batch in batches:
            optimizer.zero_grad()
            loss = model.loss(*chosen.select(batch))
            weft.backward(loss)
            optimizer.step()
            total += loss.item()
        recognised = accuracy(model, images.test)
        if comm.rank == 0:
            seconds = time.perf_counter() - start
            mean = total / len(batches)
            print(f"epoch {epoch + 1}: loss {mean:.6f}, test accuracy {recognised:.3f}, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
