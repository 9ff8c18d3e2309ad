"""Process exit: all ranks finish together, and a rank that fails reports it to the other ranks first."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
import time
import traceback
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn

import torch

from .errors import Disagreement, PeerLost

# The launcher kills all ranks when one fails. The delay lets the other ranks report their own errors first.
_EXIT_DELAY_SECONDS = 1.0
# A rank that ends because another one failed waits longer, so that the job gets the status of the rank that failed.
_PEER_DELAY_SECONDS = 5.0

_world_size = 0  # 0 until world() is called
_world_id = -1
_process = -1  # a child of os.fork() inherits this module, but must not use the MPI of its parent
_exit: tuple[int, str] | None = None  # status and description of a SystemExit that ends the process with an error


def started(world_id: int, world_size: int) -> None:
    """Called by world(): from now on the ranks exit together."""
    global _world_id, _world_size, _process
    if _world_size:
        return
    _world_id, _world_size, _process = world_id, world_size, os.getpid()
    atexit.register(_finalize)


def _has_peers() -> bool:
    return _world_size > 1 and _process == os.getpid()


def _finalize() -> None:
    """Waits for the other ranks, like MPI_Finalize, but reports long waits and failures. Runs at exit."""
    if _process != os.getpid():
        return
    if _exit is not None and _has_peers():
        status, description = _exit
        torch.ops.weft.alarm(description)
        _exit_now(status, _EXIT_DELAY_SECONDS)
    if torch.ops.weft.process_group_lost_peer():  # MPI_Finalize would wait for the lost rank
        _exit_now(0, _EXIT_DELAY_SECONDS)
    try:
        if _has_peers():
            torch.ops.weft.await_exit(_world_id)
        torch.ops.weft.finalize()
    except PeerLost as error:
        print(f"weft: a rank failed while this rank waited for all ranks to exit: {error}", file=sys.stderr)
        _exit_now(1, _PEER_DELAY_SECONDS)
    except Disagreement as error:
        print(f"weft: this rank exited while other ranks were still communicating: {error}", file=sys.stderr)
        _exit_now(1, _EXIT_DELAY_SECONDS)
    except (RuntimeError, KeyboardInterrupt) as error:
        print(f"weft: this rank stopped waiting for the other ranks to exit: {error!r}", file=sys.stderr)
        _exit_now(1, _EXIT_DELAY_SECONDS)


def _exit_now(status: int, delay: float) -> NoReturn:
    """Exits without MPI_Finalize, which could deadlock: other ranks may be waiting for this one."""
    time.sleep(delay)
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
    while frames and _defines_exit(frames[-1].filename):
        frames.pop()
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    text = "".join(traceback.format_exception_only(error)).strip()
    return f"{text}{where}"


def _defines_exit(file: str) -> bool:
    return file == __file__ or "_sitebuiltins" in file  # sys.exit() below; exit() and quit()


_code: Any = SystemExit.code


def _read_code(error: SystemExit) -> Any:
    """The getter of SystemExit.code. The interpreter reads it to end the process; then no Python code is left."""
    value = _code.__get__(error)
    try:
        sys._getframe(1)  # a caller that handles the exception
    except ValueError:
        status = value & 0xFF if isinstance(value, int) else int(value is not None)
        if status and _has_peers():
            global _exit
            _exit = status, _describe_exit(error)
    return value


def _describe_exit(error: SystemExit) -> str:
    if error.__traceback__ is None:  # Python 3.11 and earlier drop it
        error.__traceback__ = _uncaught_traceback()
    cause = f" while it handled {error.__context__}" if error.__context__ is not None else ""
    return f"{describe(error)}{cause}"


def _uncaught_traceback() -> TracebackType | None:
    """Finds the traceback of the exception that ends the program: only the interpreter refers to it."""
    objects = gc.get_objects()
    traces = [one for one in objects if type(one) is TracebackType and one.tb_frame.f_back is None]
    uncaught = [one for one in traces if all(owner is objects or owner is traces for owner in gc.get_referrers(one))]
    return uncaught[0] if len(uncaught) == 1 else None


def _watch_exit_status() -> None:
    """Makes SystemExit.code a property, because Python does not tell exit handlers the status of the process.

    Built-in types reject assignments to their attributes, but their dictionary can be changed.
    """
    attributes: dict[str, Any] = gc.get_referents(SystemExit.__dict__)[0]
    attributes["code"] = property(_read_code, _code.__set__, doc=_code.__doc__)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(SystemExit))  # clears the cache of attributes
    if sys.version_info < (3, 12):
        _wrap_sys_exit()


def _wrap_sys_exit() -> None:
    """Lets sys.exit() create a SystemExit. In Python 3.11 and earlier an uncaught one only ever has a status."""

    def exit(status: Any = None, /) -> NoReturn:
        raise SystemExit(status)

    exit.__doc__ = sys.exit.__doc__
    setattr(sys, "exit", exit)  # noqa: B010 (mypy rejects an assignment)


def install() -> None:
    """Wraps sys.excepthook and SystemExit.code."""
    earlier = sys.excepthook

    def report_and_exit(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if _has_peers():
            with suppress(RuntimeError):  # printing the traceback is more important
                torch.ops.weft.alarm(describe(error))
        earlier(kind, error, trace)
        if _has_peers():
            _flush_captured_stderr()
            peer_failed = isinstance(error, PeerLost) or torch.ops.weft.process_group_lost_peer()
            _exit_now(1, _PEER_DELAY_SECONDS if peer_failed else _EXIT_DELAY_SECONDS)

    sys.excepthook = report_and_exit
    _watch_exit_status()
