"""Flags that torchbraid's layers use to recognize the last sweep of a solve.

weft's solver restores buffers itself, so it neither reads nor sets these flags. They exist for layers that use them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["DoneFlag", "DoneFlagMixin"]


class DoneFlag:
    """Functions for flags in the attribute ``done_flag`` of modules that inherit DoneFlagMixin."""

    @staticmethod
    def allocate() -> Tensor:
        """Returns a new flag that is set."""
        return torch.tensor(True)

    @staticmethod
    def supports(obj: Any) -> bool:
        return hasattr(obj, "register_done")

    @staticmethod
    def obj_register(obj: Any, done_flag: Tensor) -> None:
        """Makes an object use this flag, if it supports flags."""
        if DoneFlag.supports(obj):
            obj.done_flag = done_flag

    @staticmethod
    def module_register(layer: nn.Module, done_flag: Tensor) -> None:
        """Makes all modules of a layer that support flags share this one."""
        for module in DoneFlag.modules(layer):
            module.done_flag = done_flag

    @staticmethod
    def update(done_flag: Tensor, state: bool) -> None:
        done_flag.fill_(state)

    @staticmethod
    def modules(layer: nn.Module) -> Iterator[nn.Module]:
        return (module for module in layer.modules() if DoneFlag.supports(module))


class DoneFlagMixin:
    """A module with a ``done_flag``."""

    done_flag: Tensor

    def register_done(self, done_flag: Tensor) -> None:
        self.done_flag = done_flag
