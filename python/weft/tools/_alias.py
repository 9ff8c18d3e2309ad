"""Keeps the module names of version 0.1, such as ``weft.report``, for the modules of weft.tools."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module


def alias(name: str, tool: str) -> None:
    """Makes the calling module, ``__name__``, an alias of weft.tools.<tool>; runs the tool for ``python -m``."""
    module = import_module(f"weft.tools.{tool}")
    if name == "__main__":
        sys.exit(module.main())
    warnings.warn(f"{name} is now weft.tools.{tool}", DeprecationWarning, stacklevel=3)
    # weft.doctor stays the function, also after `import weft.doctor`.
    sys.modules[name] = module.doctor if tool == "doctor" else module
