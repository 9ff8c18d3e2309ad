"""Process exit: all ranks finish together, and an uncaught exception is reported to the other ranks first."""

from __future__ import annotations

import atexit
import os
import sys
import time
import traceback
from contextlib import suppress
from types import TracebackType

import torch

# The launcher kills all ranks when one fails. The delay lets the other ranks report their own errors first.
_EXIT_DELAY_SECONDS = 1.0

_world_size = 0  # 0 until world() is called
_world_id = -1


def started(world_id: int, world_size: int) -> None:
    """Called by world(): from now on the ranks exit together."""
    global _world_id, _world_size
    if _world_size:
        return
    _world_id, _world_size = world_id, world_size
    atexit.register(_finalize)


def _finalize() -> None:
    """Waits for the other ranks, like MPI_Finalize, but reports long waits. Runs at normal exit."""
    if torch.ops.weft.process_group_lost_peer():  # MPI_Finalize would wait for the lost rank
        _exit_now(0)
    try:
        if _world_size > 1:
            torch.ops.weft.barrier(_world_id)
        torch.ops.weft.finalize()
    except RuntimeError as error:
        print(f"weft: this rank exited while other ranks were still communicating: {error}", file=sys.stderr)
        _exit_now(1)


def _exit_now(status: int) -> None:
    """Exits without MPI_Finalize, which could deadlock: other ranks may be waiting for this one."""
    time.sleep(_EXIT_DELAY_SECONDS)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # the stream is closed or missing
            stream.flush()
    os._exit(status)


def _flush_captured_stderr() -> None:
    """Prints the output that torch.distributed's excepthook captured to print after this hook, which never returns."""
    captured = getattr(sys.stderr, "getvalue", None)
    if captured is not None and sys.__stderr__ is not None:
        with suppress(OSError, ValueError):
            sys.__stderr__.write(captured())
            sys.__stderr__.flush()


def describe(error: BaseException) -> str:
    """Returns, for example, ``ValueError: bad batch at train.py:12``."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    text = "".join(traceback.format_exception_only(error)).strip()
    return f"{text}{where}"


def install() -> None:
    """Wraps sys.excepthook."""
    earlier = sys.excepthook

    def report_and_exit(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if _world_size > 1:
            with suppress(RuntimeError):  # printing the traceback is more important
                torch.ops.weft.alarm(describe(error))
        earlier(kind, error, trace)
        if _world_size > 1:
            _flush_captured_stderr()
            _exit_now(1)

    sys.excepthook = report_and_exit
