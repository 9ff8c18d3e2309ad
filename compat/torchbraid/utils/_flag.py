"""Flags that the modules of a layer share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from torch import Tensor, nn


class Flag:
    """Functions for a flag in an attribute of modules that have a function to register it."""

    attribute: ClassVar[str]
    register: ClassVar[str]

    @classmethod
    def supports(cls, obj: Any) -> bool:
        return hasattr(obj, cls.register)

    @classmethod
    def obj_register(cls, obj: Any, flag: Tensor) -> None:
        """Makes an object use this flag, if it supports it."""
        if cls.supports(obj):
            setattr(obj, cls.attribute, flag)

    @classmethod
    def module_register(cls, layer: nn.Module, flag: Tensor) -> None:
        """Makes all modules of a layer that support the flag share this one."""
        for module in cls.modules(layer):
            setattr(module, cls.attribute, flag)

    @staticmethod
    def update(flag: Tensor, state: int) -> None:
        flag.fill_(state)

    @classmethod
    def modules(cls, layer: nn.Module) -> Iterator[nn.Module]:
        return (module for module in layer.modules() if cls.supports(module))
