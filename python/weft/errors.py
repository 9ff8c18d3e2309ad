"""The exceptions of failed communication, told apart by how the library's messages begin."""

from __future__ import annotations

import re
from typing import NoReturn

__all__ = ["Disagreement", "LayerError", "MpiError", "PeerLost", "TimeoutError"]


class MpiError(RuntimeError):
    """An MPI function failed; the text names function, cause, rank and communicator."""


class TimeoutError(RuntimeError):
    """A wait lasted longer than ``Options.timeout``; the text says who waited in what, called from where."""


class PeerLost(RuntimeError):
    """Another rank failed while this one was communicating with it."""

    def __init__(self, message: str, rank: int = -1) -> None:
        super().__init__(message)
        self.rank = rank

    def __reduce__(self) -> tuple[type[PeerLost], tuple[str, int]]:
        return PeerLost, (str(self), self.rank)


class Disagreement(RuntimeError):
    """The ranks called different operations, or with arguments that do not fit; every rank gets the same text."""


class LayerError(RuntimeError):
    """A layer of a LayerParallel network failed on some rank; every rank gets the same text, which names both. On that
    rank ``__cause__`` is the layer's own exception."""


_LOST = re.compile(r"weft\.PeerLost: rank (-?\d+)")


def translate(error: RuntimeError) -> RuntimeError:
    """The typed exception for one that came out of the library, or the error itself."""
    text = str(error)
    if type(error) is not RuntimeError or not text.startswith(("weft", "multigrid:")):
        return error
    if text.startswith("multigrid:"):
        return LayerError(text)
    if text.startswith("weft.TimeoutError:"):
        return TimeoutError(text)
    if text.startswith("weft.MpiError:"):
        return MpiError(text)
    if lost := _LOST.match(text):
        return PeerLost(text, int(lost.group(1)))
    if text.startswith("weft: the ranks of communicator"):
        return Disagreement(text)
    return error


def reraise(error: RuntimeError) -> NoReturn:
    """Raises the typed exception for ``error``."""
    typed = translate(error)
    if typed is error:
        raise error  # with its own cause, which may be a user's
    raise typed from None
