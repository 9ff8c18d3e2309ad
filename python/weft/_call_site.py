"""Connects waits of the library with the interpreter: script lines for messages, and signals such as Ctrl-C."""

from __future__ import annotations

import atexit
import os
import sys
import threading

import torch

from . import _bindings


def hide(file: str) -> None:
    """Excludes the folder of ``file`` from call sites; for packages that are built on weft."""
    _bindings.load().hide_call_sites(os.path.dirname(os.path.abspath(file)) + os.sep)


def is_own(file: str) -> bool:
    """Whether a source file belongs to weft, torch or a package that is built on weft."""
    return _bindings.load().is_hidden_call_site(file)


def depth_of_caller() -> int:
    """Returns the stacklevel, for a warning, of the user's frame, below those of torch and weft."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and is_own(frame.f_code.co_filename):
        frame, depth = frame.f_back, depth + 1
    return depth


def install() -> None:
    """Registers the hooks with the library."""
    bindings = _bindings.load()
    for file in (__file__, torch.__file__ or "torch"):
        hide(file)  # the frames of weft and torch are not the caller's
    bindings.install_wait_hooks(threading.main_thread().ident)
    atexit.register(bindings.remove_wait_hooks)  # the library outlives the interpreter
