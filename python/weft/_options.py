"""Options: the settings of communication in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

__all__ = ["Options", "configure", "options"]


def _now(index: int) -> Callable[[], Any]:
    return lambda: torch.ops.weft.configuration()[index]


@dataclass(frozen=True)
class Options:
    """What is not given stays as it is now; the environment variables set the start."""

    timeout: float = field(default_factory=_now(0))
    """Seconds that a wait may last before it raises TimeoutError (WEFT_TIMEOUT, 300)."""
    warn_after: float = field(default_factory=_now(1))
    """Seconds before a wait says on stderr who waits in what (WEFT_WARN, 30)."""
    debug: bool = field(default_factory=_now(2))
    """Remember where operations were called from, and check backward ones too (WEFT_DEBUG)."""
    check: bool = field(default_factory=_now(3))
    """Have the ranks agree on each call before it communicates (WEFT_CHECK=0: undefined behaviour if they differ)."""
    cuda_aware: bool = field(default_factory=_now(4))
    """Give device memory to MPI where the library can take it (WEFT_CUDA_AWARE)."""
    max_count: int = field(default_factory=_now(5))
    """Elements that one MPI call is given; larger transfers are made in pieces (WEFT_MAX_COUNT)."""


def options() -> Options:
    """The settings in force."""
    return Options()


def configure(new: Options | None = None, /, **changes: Any) -> Options:
    """Sets options, whole or by name: ``configure(timeout=60)``. Returns those in force before.

    To be called on all ranks alike, between operations.
    """
    before = options()
    wanted = replace(new or before, **changes)
    if "timeout" in changes and "warn_after" not in changes and wanted.warn_after > wanted.timeout / 2:
        wanted = replace(wanted, warn_after=wanted.timeout / 2)
    torch.ops.weft.configure(
        wanted.timeout, wanted.warn_after, wanted.debug, wanted.check, wanted.cuda_aware, wanted.max_count
    )
    return before
