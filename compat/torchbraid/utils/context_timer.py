"""Named timers that are context managers."""

from __future__ import annotations

import statistics
import time
from types import TracebackType


class ContextTimer:
    """``with timer:`` adds one measurement."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._times: list[float] = []
        self._since: float | None = None

    def start(self) -> None:
        if self._since is not None:
            raise RuntimeError(f"torchbraid (weft): timer '{self._name}' is already running")
        self._since = time.perf_counter()

    def stop(self) -> None:
        if self._since is None:
            raise RuntimeError(f"torchbraid (weft): timer '{self._name}' is not running")
        self.add(time.perf_counter() - self._since)
        self._since = None

    def add(self, seconds: float) -> None:
        """Adds a measurement in seconds."""
        self._times.append(seconds)

    def __enter__(self) -> ContextTimer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def isTiming(self) -> bool:
        return self._since is not None

    def getName(self) -> str:
        return self._name

    def getTimes(self) -> list[float]:
        """Returns the measurements in seconds."""
        return self._times


class ContextTimerManager:
    """Timers by name."""

    def __init__(self) -> None:
        self._timers: dict[str, ContextTimer] = {}

    def timer(self, name: str) -> ContextTimer:
        """Returns the timer of that name; creates it on the first call."""
        return self._timers.setdefault(name, ContextTimer(name))

    def resetTimers(self) -> None:
        """Removes all timers."""
        self._timers = {}

    def getTimers(self) -> dict[str, ContextTimer]:
        return self._timers

    def getResultString(self) -> str:
        """Returns a table with count, and total, mean and standard deviation in seconds."""
        lines = [f"{'timer':<40}{'count':>8}{'total':>14}{'mean':>14}{'stddev':>14}"]
        for name, timer in sorted(self._timers.items()):
            times = timer.getTimes()
            mean = statistics.fmean(times) if times else 0.0
            spread = statistics.stdev(times) if len(times) > 1 else 0.0
            lines.append(f"{name:<40}{len(times):>8}{sum(times):>14.6e}{mean:>14.6e}{spread:>14.6e}")
        return "\n".join(lines)
