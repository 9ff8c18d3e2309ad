"""Process exit: all ranks finish together, and a rank that fails reports it to the other ranks first."""

from __future__ import annotations

import atexit
import builtins
import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from types import FrameType, TracebackType
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
_exit: _Exit | None = None  # the SystemExit that ends the process


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
    if _exit is not None and _exit.status and _has_peers():
        cause = f" while it handled {_exit.__context__}" if _exit.__context__ is not None else ""
        torch.ops.weft.alarm(f"{describe(_exit)} at {_exit.where}{cause}")
        _exit_now(_exit.status, _EXIT_DELAY_SECONDS)
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
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    text = "".join(traceback.format_exception_only(error)).strip()
    return f"{text}{where}"


_code: Any = SystemExit.code


class _Exit(SystemExit):
    """The SystemExit of sys.exit(). Knows whether it ends the process: then the interpreter reads ``code``."""

    status = 0  # of the process
    where = ""  # the call of sys.exit(); the interpreter drops the traceback

    @property
    def code(self) -> Any:
        value = _code.__get__(self)
        try:
            sys._getframe(1)  # a caller that handles the exception
        except ValueError:  # no Python code is left
            global _exit
            _exit = self
            self.status = value & 0xFF if isinstance(value, int) else int(value is not None)
        return value

    @code.setter
    def code(self, value: Any) -> None:
        _code.__set__(self, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return SystemExit, self.args


_Exit.__name__ = _Exit.__qualname__ = "SystemExit"
_Exit.__module__ = "builtins"


def _install_exit() -> None:
    """Wraps sys.exit, exit and quit: Python does not tell exit handlers the status of the process."""
    earlier = sys.exit

    def exit(status: Any = None, /) -> NoReturn:
        if threading.current_thread() is not threading.main_thread():
            earlier(status)
        error = _Exit(status)
        caller: FrameType | None = sys._getframe(1)
        while caller is not None and caller.f_code.co_filename == __file__:
            caller = caller.f_back
        if caller is not None:
            error.where = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        raise error

    exit.__doc__ = earlier.__doc__
    setattr(sys, "exit", exit)  # noqa: B010 (mypy rejects an assignment)
    for name in ("exit", "quit"):
        if hasattr(builtins, name):  # absent with python -S
            _wrap_quitter(type(getattr(builtins, name)))


def _wrap_quitter(quitter: type) -> None:
    def call(self: object, code: Any = None) -> NoReturn:
        with suppress(Exception):
            sys.stdin.close()
        sys.exit(code)

    setattr(quitter, "__call__", call)  # noqa: B010 (mypy rejects an assignment)


def install() -> None:
    """Wraps sys.excepthook and sys.exit."""
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
    _install_exit()
