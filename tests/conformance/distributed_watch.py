"""Redirects the output of tests, ends hanging tests, and restores the environment."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TextIO

# Time for the other ranks to print their reports before this rank ends the job.
REPORT_SECONDS = 3.0
# faulthandler also works if a hanging test holds the GIL, which blocks the watch thread.
FAULTHANDLER_GRACE_SECONDS = 15.0
HANG_STATUS = 3
DRIVER_ERROR_STATUS = 4


class Terminal:
    """Output of the driver. The output of the tests goes to one file per rank."""

    def __init__(self, log: Path) -> None:
        self.out: TextIO = os.fdopen(os.dup(1), "w", buffering=1)
        self.err: TextIO = os.fdopen(os.dup(2), "w", buffering=1)
        with log.open("a") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        # The last lines must be in the file after a crash.
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        faulthandler.enable(file=self.err)
        sys.excepthook = self._exit_on_exception

    def say(self, text: str) -> None:
        print(text, file=self.out, flush=True)

    def restore(self) -> None:
        """Redirects output to the terminal again, for messages during exit."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.dup2(self.out.fileno(), 1)
        os.dup2(self.err.fileno(), 2)

    def _exit_on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Exits without MPI_Finalize, which would wait for the other ranks; mpirun then ends them."""
        traceback.print_exception(kind, error, trace, file=self.err)
        os._exit(DRIVER_ERROR_STATUS)


class Watch:
    """Ends the process if a test takes longer than ``seconds``; prints the test and the stack."""

    def __init__(self, rank: int, seconds: float, terminal: Terminal, report: Callable[[str], None]) -> None:
        self._rank = rank
        self._seconds = seconds
        self._terminal = terminal
        self._report = report
        self._waiting_for = ""
        self._gave_up = threading.Event()

    @contextlib.contextmanager
    def over(self, test: str) -> Iterator[None]:
        self._waiting_for = ""
        timer = threading.Timer(self._seconds, self._give_up, [test])
        timer.daemon = True
        timer.start()
        faulthandler.dump_traceback_later(
            self._seconds + FAULTHANDLER_GRACE_SECONDS, exit=True, file=self._terminal.err
        )
        try:
            yield
        finally:
            timer.cancel()
            faulthandler.cancel_dump_traceback_later()
            if self._gave_up.is_set():
                timer.join()  # the timer ends the process; more output would mix with its report

    def waiting_for(self, whom: str) -> None:
        """Records that this rank has finished the test and waits for another rank."""
        self._waiting_for = whom

    def _give_up(self, test: str) -> None:
        self._gave_up.set()
        err = self._terminal.err
        if self._waiting_for:
            print(f"HANG {test}: rank {self._rank} waits for {self._waiting_for}", file=err, flush=True)
        else:
            print(f"HANG {test}: rank {self._rank} hangs after {self._seconds:.0f} s at:", file=err, flush=True)
            faulthandler.dump_traceback(file=err)
        self._report(test)
        time.sleep(REPORT_SECONDS)
        os._exit(HANG_STATUS)


@contextlib.contextmanager
def restored_environment() -> Iterator[None]:
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)
