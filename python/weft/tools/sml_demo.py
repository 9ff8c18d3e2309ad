"""``weft sml-demo``: trains a small network on this machine with DDP; a weft-switch sums the gradients over UDP."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import weft
from weft import data, sml


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="weft sml-demo", description="train a small network with DDP; a weft-switch sums the gradients over UDP"
    )
    parser.add_argument("--workers", type=int, default=2, help="number of worker processes (default 2)")
    parser.add_argument("--epochs", type=int, default=2, help="passes over the images (default 2)")
    parser.add_argument("--batch", type=int, default=60, help="images per mini-batch, over all workers (default 60)")
    parser.add_argument("--images", type=int, default=3000, help="maximum number of training images (default 3000)")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate (default 0.05)")
    parser.add_argument("--backend", default="sml", help="process group backend (default sml)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for name in ("workers", "epochs", "batch"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(options, name)}")
    if options.images < options.workers:
        parser.error(f"--images must be at least --workers ({options.workers}), got {options.images}")
    return options


def find_switch() -> str:
    """Returns the path of weft-switch: from the build of the library, else from the folder of this Python, or PATH.

    The packet formats of different builds may differ. Raises SystemExit if it is not installed.
    """
    from_build = Path(weft.library_path).resolve().parent.parent / "bin" / "weft-switch"
    for place in (from_build, Path(sys.executable).parent / "weft-switch"):
        if place.is_file():
            return str(place)
    found = shutil.which("weft-switch")
    if found is None:
        raise SystemExit("weft sml-demo: weft-switch not found; `make env` builds it if gRPC is installed")
    return found


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 7 * 7, 10),
    )


def chosen(images: data.LabelledImages, count: int) -> data.LabelledImages:
    """Returns at most ``count`` images, spread evenly over the set."""
    count = min(count, len(images.labels))
    return images.select(torch.linspace(0, len(images.labels) - 1, count).long())


def even_batches(batches: Iterable[Tensor], workers: int) -> list[Tensor]:
    """Trims batches to multiples of ``workers``, so that the mean of the workers' gradients is that of the batch."""
    return [batch[: len(batch) // workers * workers] for batch in batches if len(batch) >= workers]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, mine: list[data.LabelledImages]) -> list[float]:
    losses = []
    for images, labels in mine:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data.unit_floats(images)), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def accuracy(model: nn.Module, test: data.LabelledImages) -> float:
    scores: Tensor = model(data.unit_floats(test.images))
    return float((scores.argmax(1) == test.labels).float().mean())


def work(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(options.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    mnist = data.mnist()
    images = chosen(mnist.train, options.images)
    model = DistributedDataParallel(network(), bucket_cap_mb=0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9)
    for epoch in range(options.epochs):
        start = time.perf_counter()
        batches = data.shuffled_batches(len(images.labels), epoch, size=max(options.batch, size), seed=1)
        whole = even_batches(batches, size)
        losses = train(model, optimizer, [images.select(data.shard(batch, size, rank)) for batch in whole])
        if rank == 0:
            print(
                f"epoch {epoch + 1}: loss {sum(losses) / len(losses):.4f}, test accuracy "
                f"{accuracy(model.module, mnist.test):.3f}, {time.perf_counter() - start:.1f} s",
                flush=True,
            )
    if rank == 0 and options.backend == "sml":
        print("statistics: " + ", ".join(f"{name} {n}" for name, n in sorted(sml.statistics().items())))
    dist.destroy_process_group()


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.worker:
        try:
            work(options)
        except (RuntimeError, ValueError, OSError) as error:
            print(f"weft sml-demo: a worker failed: {error}", file=sys.stderr)
            return 1
        return 0
    passed = [f"--{name}={getattr(options, name)}" for name in ("epochs", "batch", "images", "rate", "backend")]
    command = [find_switch(), "--embedded", str(options.workers), "--http", "off", "--"]
    command += [sys.executable, "-m", "weft.tools.sml_demo", "--worker", *passed]
    sys.stdout.flush()
    try:
        os.execv(command[0], command)
    except OSError as error:
        print(f"weft sml-demo: cannot start '{command[0]}': {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
