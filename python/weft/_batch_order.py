"""Assignment of images to batches, computed by weft/data/batch_order.cpp."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from weft import _bindings

__all__ = ["BatchOrder", "check_seed", "sample"]


class BatchOrder:
    """Divides ``count`` images into batches such that a rank needs only a fixed part of the images.

    A batch has ``size`` positions, called lanes. Every image stays in one lane. Each epoch shuffles every lane
    separately, and batch k consists of the k-th image of every lane. Raises ValueError if an argument is out of range.
    """

    def __init__(
        self, count: int, *, size: int = 100, seed: int = 0, shuffle: bool = True, drop_last: bool = False
    ) -> None:
        self.count, self.size, self.seed, self.shuffle, self.drop_last = count, size, seed, shuffle, drop_last
        self._order = _bindings.load().BatchOrder(count, size, check_seed(seed), shuffle, drop_last)

    def __len__(self) -> int:
        """The number of batches per epoch."""
        return self._order.batches()

    def lanes(self, parts: int, index: int) -> range:
        """The lanes of part ``index`` of ``parts``; the first parts get the remainder."""
        return range(*self._order.lanes(parts, index))

    def owned(self, lanes: range) -> Tensor:
        """The images of consecutive ``lanes``, ascending."""
        return self._order.owned(*_bounds(lanes))

    def epoch(self, epoch: int, lanes: range | None = None) -> Sequence[Tensor]:
        """The images of consecutive ``lanes`` (default: all) in each batch, ordered by lane."""
        return self._order.epoch(epoch, *_bounds(range(self.size) if lanes is None else lanes))


def sample(count: int, percent: float, seed: int = 0) -> Tensor:
    """The indices, ascending, of ``percent`` of ``count`` images, at least one. Values below 1 are fractions."""
    return _bindings.load().sample(count, percent, check_seed(seed))


def check_seed(seed: int) -> int:
    if not 0 <= seed < 2**64:
        raise ValueError(f"weft: seed must be in [0, 2**64), got {seed}")
    return seed


def _bounds(lanes: range) -> tuple[int, int]:
    if lanes.step != 1:
        raise ValueError(f"weft: lanes must be consecutive, got {lanes}")
    return lanes.start, lanes.stop
