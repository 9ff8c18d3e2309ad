"""Overhead of Python in forward and backward: weft against `view_as`, without MPI, and torch.distributed over gloo.

mpirun -n 2 python benchmarks/collective/python_overhead.py
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_functional

import weft

sys.path.insert(0, str(Path(__file__).parents[1]))
from timing import compare, report

SIZES = [1, 1 << 10, 1 << 16, 1 << 20, 1 << 24]


def measure(size: int) -> None:
    comm = weft.world()
    x = torch.randn(size, requires_grad=True)
    g = torch.ones(size)
    following, previous = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def view_as() -> None:
        x.view_as(x).backward(g)
        x.grad = None

    def all_reduce() -> None:
        comm.all_reduce(x).backward(g)
        x.grad = None

    def ring() -> None:
        comm.sendrecv(x, following, previous).backward(g)
        x.grad = None

    def isend_recv() -> None:
        sending = comm.isend(x, following)
        received = comm.recv(x, previous)
        sending.wait()
        received.backward(g)
        x.grad = None

    def gloo() -> None:
        dist_functional.all_reduce(x).backward(g)
        x.grad = None

    calls = max(2, min(500, (1 << 21) // size))
    alternatives = {"view_as": view_as, "weft": all_reduce, "ring": ring, "isend_recv": isend_recv}
    times = compare(alternatives, calls, 5 if size >= 1 << 24 else 15)
    gloo_time = compare({"gloo": gloo}, max(2, calls // 10), 5)["gloo"]
    report(f"collective/all_reduce/python/{size}", times["weft"], "view_as", times["view_as"])
    report(f"collective/all_reduce/python/{size}", times["weft"], "gloo nn.functional", gloo_time)
    report(f"collective/ring/python/{size}", times["ring"], "view_as", times["view_as"])
    report(f"collective/isend_recv/python/{size}", times["isend_recv"], "view_as", times["view_as"])


def main() -> None:
    torch.set_num_threads(1)
    comm = weft.world()
    # gloo needs an address; the ranks share one machine.
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    dist.init_process_group("gloo", rank=comm.rank, world_size=comm.size)
    for size in SIZES:
        measure(size)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
