"""Errors for packages that are missing or have changed."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType


def require(package: str, module: str | None = None) -> ModuleType:
    """Returns the module. Raises ImportError with the command that installs the package if it is missing."""
    try:
        import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ImportError(f"weft: {package} is not installed; run `pip install {package}`") from None
    return import_module(module or package)


def changed(package: str, problem: str, instead: str) -> RuntimeError:
    """Returns the error for a version whose internals weft does not know."""
    try:
        found = version(package)
    except PackageNotFoundError:
        found = "unknown"
    return RuntimeError(f"weft: weft.integrations does not support {package} {found}: {problem}. Instead, {instead}")
