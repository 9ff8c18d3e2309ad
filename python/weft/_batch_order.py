"""Which images make up which batch: the same numbers as weft/data/batch_order.cpp, so that runs can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count as counting

import torch
from torch import Tensor

__all__ = ["BatchOrder", "sample"]

GOLDEN = 0x9E3779B97F4A7C15
MASK = 2**64 - 1
# What a stream of random numbers is for.
DEALING, SHUFFLING, SAMPLING = 1, 2, 3


class BatchOrder:
    """Batches of lanes, so that a rank that owns some of them needs the same images in every epoch.

    Every image stays in its lane; an epoch shuffles each lane by itself, and batch k takes the k-th image of each lane.
    """

    def __init__(
        self, count: int, *, size: int = 100, seed: int = 0, shuffle: bool = True, drop_last: bool = False
    ) -> None:
        for name, value, least in (("count", count, 0), ("size", size, 1), ("seed", seed, 0)):
            if value < least:
                raise ValueError(f"weft: expected {name} to be at least {least}, got {value}")
        self.count, self.size, self.seed, self.shuffle, self.drop_last = count, size, seed, shuffle, drop_last
        self._dealt = list(range(count))
        if shuffle:
            _shuffle(self._dealt, seed, DEALING)

    def __len__(self) -> int:
        """How many batches an epoch has."""
        return self.count // self.size if self.drop_last else -(-self.count // self.size)

    def lanes(self, parts: int, index: int) -> range:
        """Those of part ``index`` of ``parts``; the first parts have one more where they do not divide."""
        if not 0 <= index < parts:
            raise ValueError(f"weft: expected index to be from 0 to parts - 1 = {parts - 1}, got {index}")
        small, larger = divmod(self.size, parts)
        begin = index * small + min(index, larger)
        return range(begin, begin + small + (index < larger))

    def owned(self, lanes: range) -> Tensor:
        """The images of these lanes, ascending."""
        return torch.tensor(
            sorted(image for lane in lanes for image in self._dealt[lane :: self.size]), dtype=torch.int64
        )

    def epoch(self, epoch: int, lanes: range | None = None) -> Sequence[Tensor]:
        """The images of these lanes (all of them by default) in each batch, in the order of the lanes."""
        if epoch < 0:
            raise ValueError(f"weft: expected epoch to be at least 0, got {epoch}")
        batches: list[list[int]] = [[] for _ in range(len(self))]
        for lane in range(self.size) if lanes is None else lanes:
            images = self._dealt[lane :: self.size]
            if self.shuffle:
                _shuffle(images, self.seed, SHUFFLING, epoch, lane)
            for batch, image in zip(batches, images):
                batch.append(image)
        return [torch.tensor(batch, dtype=torch.int64) for batch in batches]


def sample(count: int, percent: float, seed: int = 0) -> Tensor:
    """The numbers, ascending, of ``percent`` of ``count`` images, at least one; below 1 it is the fraction itself."""
    if count < 0:
        raise ValueError(f"weft: expected count to be at least 0, got {count}")
    if not 0 < percent <= 100:
        raise ValueError(f"weft: expected percent to be above 0 and up to 100, got {percent}")
    fraction = percent if percent < 1 else percent / 100
    kept = min(max(int(count * fraction + 1e-9), min(count, 1)), count)
    numbers = list(range(count))
    if kept < count:
        _shuffle(numbers, seed, SAMPLING)
    return torch.tensor(sorted(numbers[:kept]), dtype=torch.int64)


def _scramble(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def _shuffle(items: list[int], seed: int, *place: int) -> None:
    """Fisher and Yates, with SplitMix64's numbers for this seed and place."""
    state = _scramble((seed + GOLDEN) & MASK)
    for coordinate in place:
        state = _scramble((state + GOLDEN + coordinate) & MASK)
    for i, draw in zip(range(len(items) - 1, 0, -1), counting(1)):
        j = _scramble((state + draw * GOLDEN) & MASK) * (i + 1) >> 64
        items[i], items[j] = items[j], items[i]
