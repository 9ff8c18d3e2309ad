"""Timing of work in one process, on a machine that may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def clock() -> float:
    """Returns the time of this process in seconds. With one thread, time that other processes take does not count."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def shortest_seconds(function: Callable[[], object], repeats: int) -> float:
    """Calls the function once to warm up; returns the shortest time of further calls, which others disturbed least."""
    function()
    times = []
    for _ in range(repeats):
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)
