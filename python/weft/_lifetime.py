"""How a process leaves: with everybody, or, when an exception kills it, after telling everybody."""

from __future__ import annotations

import atexit
import os
import sys
import time
import traceback
from contextlib import suppress
from types import TracebackType

import torch

# The launcher ends all ranks when one fails; the peers get this long to say why they failed too.
_FAREWELL_SECONDS = 1.0

_world_size = 0  # 0: MPI was not started by or for weft
_world_id = -1


def started(world_id: int, world_size: int) -> None:
    """To be called when the world is there: from now on leaving is everybody's business."""
    global _world_id, _world_size
    if _world_size:
        return
    _world_id, _world_size = world_id, world_size
    atexit.register(_leave)


def _leave() -> None:
    """The end of a program that nothing killed. Waits for the other ranks, as MPI_Finalize would, but can say so."""
    if torch.ops.weft.process_group_lost_peer():  # MPI_Finalize would wait for a rank that is gone
        _vanish(0)
    try:
        if _world_size > 1:
            torch.ops.weft.barrier(_world_id)
        torch.ops.weft.finalize()
    except RuntimeError as error:
        print(f"weft: the program ended while other ranks still communicate: {error}", file=sys.stderr)
        _vanish(1)


def _vanish(status: int) -> None:
    """Ends the process without MPI_Finalize, which would wait for ranks that wait for this one."""
    time.sleep(_FAREWELL_SECONDS)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed or absent
            stream.flush()
    os._exit(status)


def _show_what_was_collected() -> None:
    """torch.distributed's own excepthook, around this one, collects what is printed to print it when this one returns,
    which it does not."""
    collected = getattr(sys.stderr, "getvalue", None)
    if collected is not None and sys.__stderr__ is not None:
        with suppress(OSError, ValueError):
            sys.__stderr__.write(collected())
            sys.__stderr__.flush()


def describe(error: BaseException) -> str:
    """``ValueError: bad batch at train.py:12``."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    text = "".join(traceback.format_exception_only(error)).strip()
    return f"{text}{where}"


def install() -> None:
    """Chains sys.excepthook."""
    earlier = sys.excepthook

    def tell_the_others(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if _world_size > 1:
            with suppress(RuntimeError):  # the traceback below matters more
                torch.ops.weft.alarm(describe(error))
        earlier(kind, error, trace)
        if _world_size > 1:
            _show_what_was_collected()
            _vanish(1)

    sys.excepthook = tell_the_others
