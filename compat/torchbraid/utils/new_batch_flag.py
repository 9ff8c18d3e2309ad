"""Counters that torchbraid's layers use to recognize a new batch.

weft seeds random layers once per pass, so it neither reads nor sets these counters. They exist for layers that use
them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._flag import Flag

__all__ = ["NBFlag", "NBFlagMixin"]


class NBFlag(Flag):
    """Functions for counters in the attribute ``nb_flag`` of modules that inherit NBFlagMixin."""

    attribute = "nb_flag"
    register = "register_nb"

    @staticmethod
    def allocate() -> Tensor:
        return torch.tensor(1)

    @staticmethod
    def increment(nb_flag: Tensor) -> None:
        nb_flag += 1


class NBFlagMixin:
    """A module with an ``nb_flag``."""

    nb_flag: Tensor

    def register_nb(self, nb_flag: Tensor) -> None:
        self.nb_flag = nb_flag
