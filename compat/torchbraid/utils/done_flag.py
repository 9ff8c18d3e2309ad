"""Flags that torchbraid's layers use to recognize the last sweep of a solve.

weft's solver restores buffers itself, so it neither reads nor sets these flags. They exist for layers that use them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._flag import Flag

__all__ = ["DoneFlag", "DoneFlagMixin"]


class DoneFlag(Flag):
    """Functions for flags in the attribute ``done_flag`` of modules that inherit DoneFlagMixin."""

    attribute = "done_flag"
    register = "register_done"

    @staticmethod
    def allocate() -> Tensor:
        """Returns a new flag that is set."""
        return torch.tensor(True)


class DoneFlagMixin:
    """A module with a ``done_flag``."""

    done_flag: Tensor

    def register_done(self, done_flag: Tensor) -> None:
        self.done_flag = done_flag
