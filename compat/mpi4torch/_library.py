"""Loads weft, and the library of this package, which lies beside weft's."""

from pathlib import Path

import torch

import weft
from weft import _call_site

_NAME = "libweft_mpi4torch.so"


def _load() -> None:
    path = Path(weft.library_path).parent / _NAME
    if not path.is_file():
        raise ImportError(f"mpi4torch: {_NAME} is not beside {weft.library_path}; build weft with its compat packages")
    torch.ops.load_library(str(path))


_load()
_call_site.hide(__file__)  # so that messages name the user's line
