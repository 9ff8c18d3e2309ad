"""Many collectives, communicators and networks, one after another: memory, descriptors and MPI handles stay flat.

WEFT_SOAK=1 runs 10^5 collectives, 10^4 communicators and 10^3 networks (`make test-soak`); by default 2% of them.
"""

import gc
import os
import weakref
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from resident import resident_bytes

import weft

SCALE = 1.0 if os.environ.get("WEFT_SOAK") else 0.02
WARM_UP = 0.2  # part of the repetitions that fill pools and caches


class Usage(NamedTuple):
    memory: int
    descriptors: int
    handle: int
    """The number of a new MPI communicator: MPI reuses the numbers of freed ones. 0 if unknown."""

    @staticmethod
    def now() -> "Usage":
        return Usage(resident_bytes(), len(os.listdir("/proc/self/fd")), new_handle())


def new_handle() -> int:
    if os.environ.get("WEFT_MPI") == "mpich":  # mpi4py's wheel speaks MPICH's own ABI, not the standard one
        return 0
    MPI = pytest.importorskip("mpi4py.MPI")
    spare = MPI.COMM_WORLD.Dup()
    number = spare.py2f()
    spare.Free()
    return number


def check_flat(step: Callable[[], None], repetitions: int, memory: int) -> None:
    """Fails if the steps after the warm-up need more than ``memory`` bytes, or more descriptors or MPI handles."""
    repetitions = int(repetitions * SCALE)
    warm_up = max(10, int(repetitions * WARM_UP))
    for _ in range(warm_up):
        step()
    before = Usage.now()
    for _ in range(repetitions):
        step()
    after = Usage.now()
    assert after.memory - before.memory < memory, (before, after)
    assert after.descriptors <= before.descriptors, (before, after)
    # Communicators whose closing is in progress on this rank may hold a few handles at either moment.
    assert after.handle <= before.handle + 50, (before, after)


def test_collectives(comm: weft.Communicator) -> None:
    x = torch.ones(300, requires_grad=True)

    def step() -> None:
        total = comm.all_reduce(x) + comm.broadcast(x) + comm.scan(x)
        pending = comm.iall_reduce(x)
        weft.backward((total + pending.wait()).sum() + comm.all_gather(x).sum())
        x.grad = None

    check_flat(step, 10**5 // 5, memory=4 << 20)


def test_communicators(comm: weft.Communicator) -> None:
    """Regression: each communicator that had sent a message leaked three MPI communicators of 9 KB."""
    ahead, behind = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        other = (comm.dup, lambda: comm.split(0), lambda: comm.cart([comm.size]))[count % 3]()
        other.sendrecv(torch.ones(2000 if count % 2 else 2), ahead, behind)
        if count % 5 == 0:
            other.isend(torch.ones(3), ahead)  # never received
        if count % 2:
            other.all_reduce(torch.ones(1))
        if count % 4 < 2:
            other.free()

    check_flat(step, 10**4, memory=4 << 20)


def test_networks(comm: weft.Communicator) -> None:
    """Regression: no network was ever freed."""
    networks: list[weakref.ref[weft.LayerParallel]] = []

    def step() -> None:
        layers = [torch.nn.Linear(50, 50) for _ in range(2 * comm.size)]
        net = weft.LayerParallel(comm, layers, levels=1)
        weft.backward(net.compose(torch.sum, net(torch.ones(4, 50))))
        networks[:] = [*networks[-9:], weakref.ref(net)]

    check_flat(step, 10**3, memory=4 << 20)
    gc.collect()
    assert not [network for network in networks if network() is not None]
