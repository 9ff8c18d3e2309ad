"""Resolves attributes of a module that were renamed after version 0.1."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any


def resolve(package: str, name: str, renamed: dict[str, tuple[str, str]]) -> Any:
    """Returns the attribute that replaces ``package.name`` and warns; raises AttributeError for any other name.

    ``renamed`` maps an old name to the module and the name of its replacement.
    """
    if name not in renamed:
        raise AttributeError(f"module '{package}' has no attribute '{name}'")
    module, replacement = renamed[name]
    warnings.warn(f"{package}.{name} is now {module}.{replacement}", DeprecationWarning, stacklevel=3)
    return getattr(import_module(module), replacement)
