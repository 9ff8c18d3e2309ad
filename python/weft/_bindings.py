"""Loads weft_bindings.so: the parts of the library that torch.ops cannot express, and the translation of exceptions."""

from __future__ import annotations

from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

from . import _library


@cache
def load() -> ModuleType:
    """The module weft_bindings, from the folder of libweft.so, which may be outside of the package."""
    path = str(_library.PATH.with_name("weft_bindings.so"))
    spec = spec_from_file_location("weft_bindings", path, loader=ExtensionFileLoader("weft_bindings", path))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
