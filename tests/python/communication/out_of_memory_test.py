"""A rank that cannot allocate its result: every rank raises an error that names it, and communication continues."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor

import weft

pytestmark = [pytest.mark.usefixtures("works_afterwards"), pytest.mark.skipif("weft.world().size == 1")]

ELEMENTS = 3 << 22  # 48 MiB
SPARE = 24 << 20


@contextmanager
def limited_memory(limited: bool) -> Iterator[None]:
    """Limits the address space of this process to the present size and SPARE bytes."""
    weft.memory.trim()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    if limited:
        resource.setrlimit(resource.RLIMIT_AS, (size + SPARE, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


OPERATIONS: dict[str, Callable[[weft.Communicator, Tensor], object]] = {
    "all_reduce": lambda comm, x: comm.all_reduce(x),
    "reduce": lambda comm, x: comm.reduce(x, root=0),
    "broadcast": lambda comm, x: comm.broadcast(x),
    "all_gather": lambda comm, x: comm.all_gather(x),
    "all_gather of different sizes": lambda comm, x: comm.all_gather(x[: x.numel() - comm.rank]),
    "gather": lambda comm, x: comm.gather(x, root=1),
    "gather of different sizes": lambda comm, x: comm.gather(x[: x.numel() - comm.rank], root=1),
    "scatter": lambda comm, x: comm.scatter(x, sizes=[0, x.numel()] + [0] * (comm.size - 2)),
    "all_to_all": lambda comm, x: comm.all_to_all(x, split_sizes=[0, x.numel()] + [0] * (comm.size - 2)),
    "reduce_scatter": lambda comm, x: comm.reduce_scatter(x, sizes=[0, x.numel()] + [0] * (comm.size - 2)),
    "scan": lambda comm, x: comm.scan(x),
    "iall_reduce": lambda comm, x: comm.iall_reduce(x),
    "iall_gather": lambda comm, x: comm.iall_gather(x),
    "iall_gather of different sizes": lambda comm, x: comm.iall_gather(x[: x.numel() - comm.rank]),
    "ibroadcast": lambda comm, x: comm.ibroadcast(x),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_result_of_one_rank_does_not_fit(name: str, comm: weft.Communicator) -> None:
    """Regression: the other ranks waited inside MPI until the watchdog aborted the job."""
    x = torch.zeros(ELEMENTS)
    before = weft.configure(timeout=20)
    try:
        with (
            limited_memory(comm.rank == 1),
            pytest.raises(weft.Disagreement, match=rf"(?s)rank 1: {name.split()[0]} failed: .*bytes"),
        ):
            OPERATIONS[name](comm, x)
    finally:
        weft.configure(before)


def test_received_tensor_does_not_fit(comm: weft.Communicator) -> None:
    x = torch.zeros(ELEMENTS)
    before = weft.configure(timeout=20)
    try:
        with limited_memory(comm.rank == 1):
            if comm.rank == 0:
                with pytest.raises(weft.PeerLost, match=r"rank 1 failed: .*bytes"):
                    comm.send(x, 1)
            elif comm.rank == 1:
                with pytest.raises(RuntimeError, match="bytes"):
                    comm.recv(source=0)
            else:
                with pytest.raises(weft.PeerLost, match=r"rank 1 failed: .*bytes"):
                    comm.barrier()
    finally:
        weft.configure(before)
