"""Writes small synthetic data sets for torchbraid's scripts: MNIST, Fashion-MNIST, CIFAR-10 and ModelNet10.

The formats are those that the scripts read: torchvision's files, and the voxels of examples/modelnet. Each class has
its own pattern, and each sample adds noise.
"""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numpy as np
import torch

IMAGES = {"train": 1200, "t10k": 40}
MODELS = {"train": 24, "test": 12}
CLASSES = 10
CIFAR_BATCH = 40
VOXELS = 31
MODELNET = ("bathtub", "bed", "chair", "desk", "dresser", "monitor", "night_stand", "sofa", "table", "toilet")


def _images(rows: int, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns images of bytes and their labels."""
    random = np.random.default_rng(rows)
    labels = random.integers(0, CLASSES, rows)
    patterns = np.random.default_rng(1).integers(0, 200, (CLASSES, *shape))
    noise = random.integers(0, 56, (rows, *shape))
    return (patterns[labels] + noise).astype(np.uint8), labels.astype(np.uint8)


def write_mnist(folder: Path, name: str = "MNIST") -> None:
    raw = folder / name / "raw"
    raw.mkdir(parents=True)
    for part, rows in IMAGES.items():
        images, labels = _images(rows, 28, 28)
        header = struct.pack(">4i", 0x803, rows, 28, 28)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, rows) + labels.tobytes())


def write_cifar10(folder: Path) -> None:
    target = folder / "cifar-10-batches-py"
    target.mkdir(parents=True)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    images, labels = _images(CIFAR_BATCH * len(names), 3 * 32 * 32)
    for number, name in enumerate(names):
        rows = slice(number * CIFAR_BATCH, (number + 1) * CIFAR_BATCH)
        (target / name).write_bytes(pickle.dumps({"data": images[rows], "labels": labels[rows].tolist()}))
    (target / "batches.meta").write_bytes(pickle.dumps({"label_names": [str(label) for label in range(CLASSES)]}))


def write_modelnet(folder: Path) -> None:
    """Writes boxes whose sides depend on the class."""
    random = np.random.default_rng(2)
    for part, rows in MODELS.items():
        lines = []
        for number in range(rows):
            label = number % CLASSES
            model = torch.zeros(VOXELS, VOXELS, VOXELS)
            low = random.integers(0, 6, 3)
            high = VOXELS - random.integers(0, 6, 3) - np.array([label, 2 * label % CLASSES, 3 * label % CLASSES])
            model[tuple(slice(int(a), int(b)) for a, b in zip(low, high, strict=True))] = 1
            path = Path("data") / "processed" / MODELNET[label] / part / f"{number}_{VOXELS}.pt"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            torch.save(model, folder / path)
            lines.append(f"{path},{label}\r\n")
        (folder / "data" / f"{part}_labels.csv").write_text("".join(lines), newline="")
