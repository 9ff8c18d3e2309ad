"""Counters that torchbraid's layers use to recognize a new batch.

weft seeds random layers once per pass, so it neither reads nor sets these counters. They exist for layers that use
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["NBFlag", "NBFlagMixin"]


class NBFlag:
    """Functions for counters in the attribute ``nb_flag`` of modules that inherit NBFlagMixin."""

    @staticmethod
    def allocate() -> Tensor:
        return torch.tensor(1)

    @staticmethod
    def obj_register(obj: Any, nb_flag: Tensor) -> None:
        """Makes an object use this counter, if it supports counters."""
        if hasattr(obj, "register_nb"):
            obj.nb_flag = nb_flag

    @staticmethod
    def module_register(layer: nn.Module, nb_flag: Tensor) -> None:
        """Makes all modules of a layer that support counters share this one."""
        for module in NBFlag.modules(layer):
            module.nb_flag = nb_flag

    @staticmethod
    def update(nb_flag: Tensor, state: int) -> None:
        nb_flag.fill_(state)

    @staticmethod
    def increment(nb_flag: Tensor) -> None:
        nb_flag += 1

    @staticmethod
    def modules(layer: nn.Module) -> Iterator[nn.Module]:
        return (module for module in layer.modules() if hasattr(module, "register_nb"))


class NBFlagMixin:
    """A module with an ``nb_flag``."""

    nb_flag: Tensor

    def register_nb(self, nb_flag: Tensor) -> None:
        self.nb_flag = nb_flag
