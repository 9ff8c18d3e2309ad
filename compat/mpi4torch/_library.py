"""Loads weft, then the shared library of this package from the same folder."""

from pathlib import Path

import torch

import weft
from weft import _call_site

_NAME = "libweft_mpi4torch.so"


def _load() -> None:
    path = Path(weft.library_path).parent / _NAME
    if not path.is_file():
        raise ImportError(f"mpi4torch: {path} not found; build weft with its compat packages")
    torch.ops.load_library(str(path))


_load()
_call_site.hide(__file__)  # error messages name the user's line, not this package's
