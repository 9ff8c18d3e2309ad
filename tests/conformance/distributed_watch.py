"""What keeps tests on several ranks in order: their output set aside, hangs ended, the environment restored."""

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

# How long the other ranks have to print what they know before one that gives up ends the job.
LAST_WORDS_SECONDS = 3.0
# A hang that holds the interpreter's lock silences the watching thread: faulthandler's needs no lock.
FAULTHANDLER_GRACE_SECONDS = 15.0
HANG_STATUS = 3
DRIVER_ERROR_STATUS = 4


class Terminal:
    """The driver's own output, while what the tests print goes to a file of each rank."""

    def __init__(self, log: Path) -> None:
        self.out: TextIO = os.fdopen(os.dup(1), "w", buffering=1)
        self.err: TextIO = os.fdopen(os.dup(2), "w", buffering=1)
        with log.open("a") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        # After a crash the file's last lines must be there.
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        faulthandler.enable(file=self.err)
        sys.excepthook = self._end_by_exception

    def say(self, text: str) -> None:
        print(text, file=self.out, flush=True)

    def give_back(self) -> None:
        """When the tests are over: what the process says as it leaves is for the terminal."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.dup2(self.out.fileno(), 1)
        os.dup2(self.err.fileno(), 2)

    def _end_by_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """The driver's own. Without the usual way out, which waits for the other ranks: mpirun then ends them."""
        traceback.print_exception(kind, error, trace, file=self.err)
        os._exit(DRIVER_ERROR_STATUS)


class Watch:
    """Ends the process where a test takes longer than ``seconds``, saying which test and where it stands."""

    def __init__(self, rank: int, seconds: float, terminal: Terminal, last_words: Callable[[str], None]) -> None:
        self._rank = rank
        self._seconds = seconds
        self._terminal = terminal
        self._last_words = last_words
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
                timer.join()  # it ends the process; going on would only mix more into its words

    def waits(self, whom: str) -> None:
        """This rank is done with the test, and now only waits."""
        self._waiting_for = whom

    def _give_up(self, test: str) -> None:
        self._gave_up.set()
        err = self._terminal.err
        if self._waiting_for:
            print(f"HANG {test}: rank {self._rank} is done and waits for {self._waiting_for}", file=err, flush=True)
        else:
            print(f"HANG {test}: rank {self._rank} is in it for {self._seconds:.0f} s, at:", file=err, flush=True)
            faulthandler.dump_traceback(file=err)
        self._last_words(test)
        time.sleep(LAST_WORDS_SECONDS)
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
