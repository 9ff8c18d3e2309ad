"""Real images to train with: IDX and CIFAR-10 files, MNIST or its sample, and shuffled mini-batches."""

from __future__ import annotations

import gzip
import math
import os
import struct
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from weft._batch_order import BatchOrder, sample

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

IDX_TYPES = {
    0x08: torch.uint8,
    0x09: torch.int8,
    0x0B: torch.int16,
    0x0C: torch.int32,
    0x0D: torch.float32,
    0x0E: torch.float64,
}
CLASSES = 10
CIFAR_SHAPE = (3, 32, 32)
GZIP_MAGIC = b"\x1f\x8b"
TRAIN_IMAGES = "train-images-idx3-ubyte"


class LabelledImages(NamedTuple):
    """Images with a label each."""

    images: Tensor
    """uint8, (count, channels, height, width)."""
    labels: Tensor
    """int64, (count,)."""

    def select(self, numbers: Tensor) -> LabelledImages:
        """Those with the given numbers, in that order; a copy."""
        return LabelledImages(self.images[numbers], self.labels[numbers])


class Mnist(NamedTuple):
    train: LabelledImages
    test: LabelledImages


def mnist(folder: str | os.PathLike[str] | None = None) -> Mnist:
    """MNIST's four IDX files, plain or gzipped, from ``folder`` or else from ``mnist_folder()``."""
    place = mnist_folder() if folder is None else Path(folder)

    def load(name: str) -> LabelledImages:
        images, labels = (_plain_or_gzipped(place / f"{name}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
        return _pair_up(read_idx(images), read_idx(labels), f"{images} and {labels.name}")

    return Mnist(load("train"), load("t10k"))


def mnist_folder() -> Path:
    """The folder with MNIST's files.

    If the environment variable WEFT_DATA names a folder: that, or MNIST or mnist in it. Otherwise the sample of 5,000
    images that ``make env`` writes.
    """
    data = os.environ.get("WEFT_DATA")
    if data:
        places = [Path(data), Path(data, "MNIST"), Path(data, "mnist")]
        advice = (
            f"in WEFT_DATA ('{data}') or in MNIST or mnist there; without WEFT_DATA there is the sample of make env"
        )
    else:
        places = [Path(sys.prefix, "share", "weft", "mnist")]
        advice = f"in {places[0]}; run make env, or set WEFT_DATA to a folder with MNIST's four files"
    for place in places:
        if _plain_or_gzipped(place / TRAIN_IMAGES).exists():
            return place
    raise FileNotFoundError(f"weft: expected {TRAIN_IMAGES} {advice}")


def read_idx(path: str | os.PathLike[str]) -> Tensor:
    """The array in an IDX file, plain or gzipped, with its own type."""
    content = _read(path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in IDX_TYPES:
        raise ValueError(
            f"weft: expected '{path}' to be an IDX file, which begins with 0 0 and a type of 8, 9, 11, 12, 13 or 14, "
            f"got a file that begins with {list(content[:4])}"
        )
    dtype, header = IDX_TYPES[content[2]], 4 + 4 * content[3]
    if len(content) < header:
        raise ValueError(f"weft: expected '{path}' to have a header of {header} bytes, got {len(content)} bytes in all")
    shape = struct.unpack(f">{content[3]}I", content[4:header])
    if math.prod(shape) * dtype.itemsize != len(content) - header:
        sizes = " x ".join(map(str, shape))
        raise ValueError(
            f"weft: expected '{path}' to be as long as its header says, {sizes} items of {dtype.itemsize} bytes, "
            f"got {len(content) - header} bytes of data"
        )
    return _from_big_endian(content[header:], dtype).reshape(shape)


def read_cifar10(path: str | os.PathLike[str]) -> LabelledImages:
    """One file of CIFAR-10's binary form, data_batch_1.bin for example, plain or gzipped."""
    content = _read(path)
    size = 1 + math.prod(CIFAR_SHAPE)
    if not content or len(content) % size:
        raise ValueError(
            f"weft: expected '{path}' to be CIFAR-10 records of {size} bytes, and at least one, got {len(content)} "
            f"bytes: {len(content) // size} records and {len(content) % size} bytes more"
        )
    records = torch.frombuffer(content, dtype=torch.uint8).view(-1, size)
    return _pair_up(records[:, 1:].reshape(-1, *CIFAR_SHAPE), records[:, 0], f"'{path}'")


def unit_floats(images: Tensor) -> Tensor:
    """Pixels from 0 to 1."""
    return images.float() / 255


def shuffled_batches(
    count: int, epoch: int, *, size: int = 50, seed: int = 0, drop_last: bool = False
) -> Sequence[Tensor]:
    """The numbers of the items of each mini-batch of an epoch.

    Every item of ``count`` is in one of them, in an order that depends on ``seed`` and ``epoch`` only: not on the
    number of ranks, and the same in C++. Leaves torch's random state as it is. A rank of a data-parallel job takes
    ``shard(batch, comm.size, comm.rank)``.
    """
    for name, value, least in (("count", count, 0), ("epoch", epoch, 0), ("size", size, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"weft: expected {name} to be at least {least}, got {value}")
    if count == 0:
        return []
    order = torch.randperm(count, generator=torch.Generator().manual_seed(_seed_of_epoch(seed, epoch)))
    batches = list(order.split(size))
    return batches[:-1] if drop_last and len(batches[-1]) < size else batches


def shard(whole: Tensor, parts: int, index: int, dim: int = 0) -> Tensor:
    """A view of the slice that part ``index`` of ``parts`` owns; the first have one more where they do not divide."""
    if not 0 <= index < parts:
        raise ValueError(f"weft: expected index to be from 0 to parts - 1 = {parts - 1}, got {index}")
    small, larger = divmod(whole.size(dim), parts)
    return whole.narrow(dim, index * small + min(index, larger), small + (index < larger))


def tile(images: Tensor, rows: int, columns: int, index: int) -> Tensor:
    """A view of the tile that rank ``index`` of a grid owns, of images (..., height, width)."""
    if columns < 1:
        raise ValueError(f"weft: expected at least 1 column, got {columns}")
    return shard(shard(images, rows, index // columns, dim=-2), columns, index % columns, dim=-1)


def _seed_of_epoch(seed: int, epoch: int) -> int:
    """Torch's generator looks at the lower 32 bits of a seed only: all of seed and epoch have to arrive there."""
    mixed = (seed * 0x9E3779B97F4A7C15 + epoch) % 2**64
    return mixed ^ (mixed >> 32)


def _read(path: str | os.PathLike[str]) -> bytearray:
    content = bytearray(Path(path).read_bytes())
    if not content.startswith(GZIP_MAGIC):
        return content
    try:
        return bytearray(gzip.decompress(content))
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(
            f"weft: expected '{path}' to be a whole gzipped file, got one that does not unpack: {error}"
        ) from error


def _plain_or_gzipped(path: Path) -> Path:
    gzipped = path.with_name(path.name + ".gz")
    return gzipped if gzipped.exists() and not path.exists() else path


def _from_big_endian(content: bytearray, dtype: torch.dtype) -> Tensor:
    if not content:
        return torch.empty(0, dtype=dtype)
    items = torch.frombuffer(content, dtype=torch.uint8).view(-1, dtype.itemsize)
    if sys.byteorder == "little" and dtype.itemsize > 1:
        items = items.flip(1)
    return items.view(dtype)


def _pair_up(images: Tensor, labels: Tensor, name: str) -> LabelledImages:
    def require(holds: bool, expected: str, got: object) -> None:
        if not holds:
            raise ValueError(f"weft: expected {name} to have {expected}, got {got}")

    for what, array, dims in (("images", images, (3, 4)), ("labels", labels, (1,))):
        fits = array.dtype == torch.uint8 and array.dim() in dims
        expected = f"{what} of bytes in {' or '.join(map(str, dims))} dimensions"
        require(fits, expected, f"{array.dtype} of shape {list(array.shape)}")
    require(len(images) == len(labels), "a label for each image", f"{len(images)} images and {len(labels)} labels")
    largest = int(labels.max()) if len(labels) else 0
    require(largest < CLASSES, f"labels from 0 to {CLASSES - 1}", largest)
    return LabelledImages(images.unsqueeze(1) if images.dim() == 3 else images, labels.long())
