"""Gives the library the script line that a thread executes, for its messages about long waits."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from types import FrameType

import torch

from . import _library

_Hook = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_size_t)

# Frames in these folders belong to weft and torch, not to the caller.
_own = tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (__file__, torch.__file__ or "torch"))


def hide(file: str) -> None:
    """Excludes the folder of ``file`` from call sites; for packages that are built on weft."""
    global _own
    _own = (*_own, os.path.dirname(os.path.abspath(file)) + os.sep)


def _caller(frame: FrameType | None) -> str:
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_own) and not file.startswith("<frozen"):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _write_call_site(thread: int, text: int, capacity: int) -> int:
    try:
        site = _caller(sys._current_frames().get(thread)).encode()[-capacity:]
        ctypes.memmove(text, site, len(site))
        return len(site)
    except BaseException:  # an exception cannot cross into the library
        return 0


_hook = _Hook(_write_call_site)


def install() -> None:
    """Registers the hook with the library."""
    setter = _library.SYMBOLS.weft_set_call_site_hook
    setter.argtypes, setter.restype = [_Hook], None
    setter(_hook)
    # The library outlives the interpreter and must not call into it after exit.
    atexit.register(lambda: setter(_Hook(0)))
