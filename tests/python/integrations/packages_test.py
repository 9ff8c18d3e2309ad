"""Integrations without their packages raise an error that names the command to install them."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest


@pytest.mark.parametrize("package", ["accelerate", "lightning", "transformers"])
def test_a_missing_package_raises(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"weft: {package} is not installed; run `pip install {package}`"):
        import_module(f"weft.integrations.{package}")
