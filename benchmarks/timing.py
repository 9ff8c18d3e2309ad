"""Timing for programs whose ranks must do the same number of rounds: medians of repeats, alternatives interleaved."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import torch

import weft


def compare(alternatives: dict[str, Callable[[], float | None]], calls: int, repeats: int) -> dict[str, float]:
    """Returns the microseconds per call of each alternative: the median over repeats of the slowest rank's mean.

    An alternative may return the seconds of its call that do not count.
    """
    comm = weft.world()
    samples: dict[str, list[float]] = {name: [] for name in alternatives}
    for repeat in range(repeats + 1):
        for name, run in alternatives.items():
            comm.barrier()
            start = time.perf_counter()
            for _ in range(calls):
                start += run() or 0.0
            mine = torch.tensor((time.perf_counter() - start) / calls * 1e6)
            slowest = comm.all_reduce(mine, "max").item()
            if repeat:  # the first repeat warms up
                samples[name].append(slowest)
    return {name: statistics.median(times) for name, times in samples.items()}


def report(name: str, value: float, peer: str, peer_value: float) -> None:
    """Prints one JSON line per figure, in the format of benchmarks/results.jsonl."""
    if weft.world().rank == 0:
        figure = {"name": name, "value": round(value, 3), "unit": "us", "peer": f"{peer} {peer_value:.3f} us"}
        print(json.dumps({**figure, "ratio": round(value / peer_value, 3)}), flush=True)
