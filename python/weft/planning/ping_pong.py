"""Measures the latency and the bandwidth of messages between two ranks; run by ``Machine.measure``."""

from __future__ import annotations

import json
import statistics
import time

import torch

import weft

SMALL, LARGE = 1, 1 << 20  # elements of 4 bytes


def seconds_per_message(comm: weft.Communicator, elements: int, repeats: int) -> float:
    """Collective. Returns the median time of a message from one rank to the other."""
    x = torch.zeros(elements)
    times = []
    for _ in range(repeats):
        comm.barrier()
        start = time.perf_counter()
        if comm.rank == 0:
            comm.send(x, dest=1)
            comm.recv(like=x, source=1)
        else:
            comm.recv(like=x, source=0)
            comm.send(x, dest=0)
        times.append((time.perf_counter() - start) / 2)
    return statistics.median(times)


def main() -> None:
    comm = weft.world()
    with torch.no_grad():
        seconds_per_message(comm, SMALL, 20)
        latency = seconds_per_message(comm, SMALL, 200)
        large = seconds_per_message(comm, LARGE, 20)
    if comm.rank == 0:
        print(json.dumps({"latency": latency, "bandwidth": 4 * LARGE / max(large - latency, 1e-9)}), flush=True)


if __name__ == "__main__":
    main()
