"""A memory pool for torch's host tensors: reusing memory avoids page faults."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["Statistics", "pool", "statistics", "stop", "trim"]


@dataclass(frozen=True)
class Statistics:
    """Statistics of the pool of this process."""

    live_bytes: int
    """Bytes in use."""
    cached_bytes: int
    """Bytes that are free and available for reuse."""
    peak_bytes: int
    """Maximum of ``live_bytes`` since the last trim()."""
    hits: int
    """Requests served by a free block."""
    misses: int
    """Requests that allocated from the system."""
    evictions: int
    """Blocks released because of the limits."""


class _Pooling:
    """Context manager that stops pooling unless it was on before."""

    def __init__(self, was_on: bool) -> None:
        self._was_on = was_on

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        if not self._was_on:
            stop()


def pool(*, of_peak: float = 1.25, at_least: int = 256 << 20) -> _Pooling:
    """Allocates torch's host tensors of at least 16 KiB from a pool, until stop() or the end of a with statement.

    The pool holds at most ``of_peak`` times the peak of live bytes, or ``at_least`` bytes if that is more, counting
    live and free blocks. Call it between computations. Raises ValueError for invalid limits.
    """
    was_on = torch.ops.weft.is_pooling()
    torch.ops.weft.start_pooling(of_peak, at_least)
    return _Pooling(was_on)


def stop() -> None:
    """Restores torch's allocator. Tensors from the pool stay valid."""
    torch.ops.weft.stop_pooling()


def trim() -> None:
    """Releases all free blocks to the system and resets the peak."""
    torch.ops.weft.empty_pool()


def statistics() -> Statistics:
    """Returns the current statistics of the pool."""
    return Statistics(*torch.ops.weft.pool_statistics())
