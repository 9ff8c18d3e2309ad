"""Marks functions that torch.utils.checkpoint will recompute, so that communication inside them raises an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import checkpoint


@contextmanager
def _checkpointed() -> Iterator[None]:
    torch.ops.weft.enter_checkpoint()
    try:
        yield
    finally:
        torch.ops.weft.leave_checkpoint()


def install() -> None:
    """Wraps both implementations of torch.utils.checkpoint. Neither recomputes if no gradient is needed."""
    hook = checkpoint._checkpoint_hook  # entered by the one with use_reentrant=False around the first forward pass
    enter, leave = hook.__enter__, hook.__exit__

    def enter_marked(self: Any) -> Any:
        torch.ops.weft.enter_checkpoint()
        return enter(self)

    def leave_marked(self: Any, *error: Any) -> Any:
        torch.ops.weft.leave_checkpoint()
        return leave(self, *error)

    hook.__enter__, hook.__exit__ = enter_marked, leave_marked  # type: ignore[method-assign]

    apply = checkpoint.CheckpointFunction.apply  # the one with use_reentrant=True

    def apply_marked(*args: Any) -> Any:
        if not (torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in args)):
            return apply(*args)
        with _checkpointed():
            return apply(*args)

    checkpoint.CheckpointFunction.apply = staticmethod(apply_marked)  # type: ignore[method-assign]
