"""Images for training: IDX and CIFAR-10 files, MNIST or its sample, and shuffled mini-batches.

The readers and the order of batches are those of weft/data. Missing files raise FileNotFoundError; invalid files and
arguments raise ValueError.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from weft import _bindings
from weft._batch_order import BatchOrder, check_seed, sample

__all__ = [
    "BatchOrder",
    "LabelledImages",
    "Mnist",
    "mnist",
    "mnist_folder",
    "read_cifar10",
    "read_idx",
    "sample",
    "shard",
    "shuffled_batches",
    "tile",
    "unit_floats",
]


class LabelledImages(NamedTuple):
    """Images with one label each."""

    images: Tensor
    """uint8, (count, channels, height, width)."""
    labels: Tensor
    """int64, (count,)."""

    def select(self, numbers: Tensor) -> LabelledImages:
        """Copies the images with the given indices, in that order."""
        return LabelledImages(self.images[numbers], self.labels[numbers])


class Mnist(NamedTuple):
    train: LabelledImages
    test: LabelledImages


def mnist(folder: str | os.PathLike[str] | None = None) -> Mnist:
    """Reads MNIST's four IDX files, plain or gzipped, from ``folder`` or, by default, from ``mnist_folder()``."""
    train, test = _bindings.load().mnist(mnist_folder() if folder is None else folder)
    return Mnist(LabelledImages(*train), LabelledImages(*test))


def mnist_folder() -> Path:
    """The folder with MNIST's files.

    Searches ``$WEFT_DATA``, ``$WEFT_DATA/MNIST`` and ``$WEFT_DATA/mnist`` if the variable is set; otherwise returns the
    sample of 5,000 images that ``make env`` installs.
    """
    return _bindings.load().mnist_folder()


def read_idx(path: str | os.PathLike[str]) -> Tensor:
    """Reads the array in an IDX file, plain or gzipped, with its own type."""
    return _bindings.load().read_idx(path)


def read_cifar10(path: str | os.PathLike[str]) -> LabelledImages:
    """Reads a file in CIFAR-10's binary format, for example data_batch_1.bin, plain or gzipped."""
    return LabelledImages(*_bindings.load().read_cifar10(path))


def unit_floats(images: Tensor) -> Tensor:
    """Converts pixels from bytes to floats between 0 and 1."""
    return images.float() / 255


def shuffled_batches(
    count: int, epoch: int, *, size: int = 50, seed: int = 0, drop_last: bool = False
) -> Sequence[Tensor]:
    """The item indices of each mini-batch of an epoch.

    Each of the ``count`` items is in exactly one batch. The order depends only on ``seed`` and ``epoch``, not on the
    number of ranks or on torch's random state. A rank of a data-parallel job uses
    ``shard(batch, comm.size, comm.rank)``.
    """
    return _bindings.load().shuffled_batches(count, epoch, size, check_seed(seed), drop_last)


def shard(whole: Tensor, parts: int, index: int, dim: int = 0) -> Tensor:
    """A view of the slice that part ``index`` of ``parts`` owns; the first parts get the remainder."""
    return _bindings.load().shard(whole, parts, index, dim)


def tile(images: Tensor, rows: int, columns: int, index: int) -> Tensor:
    """A view of the tile that rank ``index`` of a grid owns, of images (..., height, width)."""
    if columns < 1:
        raise ValueError(f"weft: columns must be at least 1, got {columns}")
    return shard(shard(images, rows, index // columns, dim=-2), columns, index % columns, dim=-1)
