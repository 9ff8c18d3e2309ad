"""Finds libweft.so and loads it into torch."""

from __future__ import annotations

import os
from pathlib import Path

import torch

_NAME = "libweft.so"


def _candidates() -> list[Path]:
    """Returns possible paths of the library, most explicit first. In a checkout, lib/ links to the current build."""
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
        f"weft: {_NAME} not found; tried:{tried}\n"
        "In a checkout, run `make env`; otherwise reinstall weft, or set WEFT_LIBRARY to the file."
    )


def _load() -> Path:
    path = _find()
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(
            f"weft: cannot load {path}: {error}\nThe library needs the MPI and torch versions that it was built with; "
            f"this is torch {torch.__version__}."
        ) from error
    return path


PATH = _load()
