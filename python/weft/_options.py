"""Options of communication in this process."""

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
    """Communication options. Omitted fields keep their current values; environment variables set the initial ones."""

    timeout: float = field(default_factory=_now(0))
    """Seconds before a wait raises TimeoutError (WEFT_TIMEOUT, 300)."""
    warn_after: float = field(default_factory=_now(1))
    """Seconds before a wait prints the rank and the operation to stderr (WEFT_WARN, 30)."""
    debug: bool = field(default_factory=_now(2))
    """Record the call sites of operations, and also check operations in backward (WEFT_DEBUG)."""
    check: bool = field(default_factory=_now(3))
    """Check that all ranks make the same call before it communicates (WEFT_CHECK=0 disables it; a mismatch is then
    undefined behaviour)."""
    cuda_aware: bool = field(default_factory=_now(4))
    """Pass device memory to MPI if the library supports it (WEFT_CUDA_AWARE)."""
    max_count: int = field(default_factory=_now(5))
    """Maximum number of elements per MPI call; larger transfers are split (WEFT_MAX_COUNT)."""


def options() -> Options:
    """Returns the current options."""
    return Options()


def configure(new: Options | None = None, /, **changes: Any) -> Options:
    """Sets options, all or by name: ``configure(timeout=60)``. Call it on all ranks, between operations.

    Returns the previous options. Raises ValueError if a value is out of range.
    """
    before = options()
    wanted = replace(new or before, **changes)
    if "timeout" in changes and "warn_after" not in changes and wanted.warn_after > wanted.timeout / 2:
        wanted = replace(wanted, warn_after=wanted.timeout / 2)
    torch.ops.weft.configure(
        wanted.timeout, wanted.warn_after, wanted.debug, wanted.check, wanted.cuda_aware, wanted.max_count
    )
    return before
