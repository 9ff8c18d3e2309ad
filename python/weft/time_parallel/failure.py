"""Errors of single ranks as errors of all ranks."""

from __future__ import annotations

from typing import NoReturn

from .. import _objects
from ..communicator import Communicator
from ..errors import LayerError


def raise_shared(comm: Communicator | None, name: str, error: Exception | None) -> NoReturn:
    """Collective. Raises LayerError with the text of the first rank whose cell failed.

    ``error``: the exception of this rank, if its cell failed.
    """
    if comm is None or comm.size == 1:
        assert error is not None
        raise LayerError(f"weft: {name}: the cell failed: {_text(error)}") from error
    texts = _objects.all_gather(comm, None if error is None else _text(error))
    rank = next(rank for rank, text in enumerate(texts) if text is not None)
    raise LayerError(f"weft: {name}: the cell failed on rank {rank}: {texts[rank]}") from error


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
