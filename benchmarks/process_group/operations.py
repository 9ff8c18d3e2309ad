"""Operations of torch.distributed on backend weft against gloo, in one process.

mpirun -n 2 python benchmarks/process_group/operations.py [all_reduce,broadcast]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))
from timing import compare, report

SIZES = [1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]  # bytes per rank
Operation = Callable[[Any], None]


def operations(size: int) -> dict[str, Operation]:
    """Returns operations on tensors of `size` bytes per rank, as functions of the group."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    elements = size // 4
    mine, whole, other = torch.ones(elements), torch.ones(elements * ranks), torch.empty(elements * ranks)
    piece = torch.ones(elements // ranks * ranks)
    pieces = torch.empty_like(piece)

    def ping_pong(group: Any) -> None:
        if rank == 0:
            dist.send(mine, 1, group=group)
            dist.recv(mine, 1, group=group)
        elif rank == 1:
            dist.recv(mine, 0, group=group)
            dist.send(mine, 0, group=group)

    return {
        "all_reduce": lambda group: dist.all_reduce(mine, group=group),
        "all_gather": lambda group: dist.all_gather_into_tensor(other, mine, group=group),
        "reduce_scatter": lambda group: dist.reduce_scatter_tensor(mine, whole, group=group),
        "all_to_all": lambda group: dist.all_to_all_single(pieces, piece, group=group),
        "broadcast": lambda group: dist.broadcast(mine, 0, group=group),
        "send_recv": ping_pong,
    }


def measure(name: str, operation: Operation, size: int, groups: dict[str, Any]) -> None:
    calls = max(1, min(100, (4 << 20) // size))
    alternatives = {backend: lambda group=group: operation(group) for backend, group in groups.items()}
    times = compare(alternatives, calls, 3 if size >= 64 << 20 else 5 if size >= 1 << 20 else 11)
    report(f"process_group/{name}/n{dist.get_world_size()}/{size}", times["weft"], "gloo", times["gloo"])


def main() -> None:
    warnings.simplefilter("ignore")  # torch deprecates names that all versions support
    torch.set_num_threads(1)
    dist.init_process_group("weft")
    groups = {"weft": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    wanted = sys.argv[1].split(",") if len(sys.argv) > 1 else None
    for size in SIZES:
        for name, operation in operations(size).items():
            if wanted is None or name in wanted:
                measure(name, operation, size, groups)


if __name__ == "__main__":
    main()
