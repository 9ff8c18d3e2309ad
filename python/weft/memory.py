"""Reused host memory: a pool that torch's tensors can come from, because fresh pages cost time."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["Statistics", "pool", "statistics", "stop", "trim"]


@dataclass(frozen=True)
class Statistics:
    """In bytes and counts, of this process."""

    live_bytes: int
    """In use."""
    cached_bytes: int
    """Waiting to be used again."""
    peak_bytes: int
    """The most that was in use at once since the last trim()."""
    hits: int
    """Requests that found a block."""
    misses: int
    """Requests that went to the system."""
    evictions: int
    """Blocks given back to the system because of the limits."""


class _Pooling:
    """Ends with the block of a with statement."""

    def __init__(self, was_on: bool) -> None:
        self._was_on = was_on

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        if not self._was_on:
            stop()


def pool(*, of_peak: float = 1.25, at_least: int = 256 << 20) -> _Pooling:
    """Lets torch's host tensors of 16 KiB and more use memory again, from now on or inside a with statement.

    The pool holds, in use and free together, at most ``of_peak`` times the most that was in use at once, or
    ``at_least`` bytes. Call it between computations.
    """
    was_on = torch.ops.weft.is_pooling()
    torch.ops.weft.start_pooling(of_peak, at_least)
    return _Pooling(was_on)


def stop() -> None:
    """Torch's own allocator again; tensors out of the pool stay valid."""
    torch.ops.weft.stop_pooling()


def trim() -> None:
    """Gives what is free back to the system, and forgets the peak."""
    torch.ops.weft.empty_pool()


def statistics() -> Statistics:
    return Statistics(*torch.ops.weft.pool_statistics())
