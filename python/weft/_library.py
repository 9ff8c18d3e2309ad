"""Finds libweft.so and loads it into torch."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import torch

_NAME = "libweft.so"


def _candidates() -> list[Path]:
    """Where the library may be, most explicit first. In a checkout, lib/ is a link to the build in use."""
    places = []
    if file := os.environ.get("WEFT_LIBRARY"):
        places.append(Path(file))
    if folder := os.environ.get("WEFT_LIBRARY_DIR"):
        places.append(Path(folder) / _NAME)
    places.append(Path(__file__).parent / "lib" / _NAME)
    return places


def _find() -> Path:
    candidates = _candidates()
    for path in candidates:
        if path.is_file():
            return path
    tried = "".join(f"\n  {path}" for path in candidates)
    raise ImportError(
        f"weft: {_NAME} was not found. Looked for:{tried}\n"
        "In a checkout, run `make env`; elsewhere, `pip install .` again or set WEFT_LIBRARY to the file."
    )


def _load() -> tuple[Path, ctypes.CDLL]:
    path = _find()
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(
            f"weft: {path} could not be loaded: {error}\nIt needs the MPI and the torch (this one is "
            f"{torch.__version__}) that it was built with."
        ) from error
    return path, ctypes.CDLL(str(path))


PATH, SYMBOLS = _load()
