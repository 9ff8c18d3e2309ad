"""Forward and backward passes do not leak memory."""

import gc

import pytest
import torch
from resident import resident_bytes

import weft

PASSES = 10_000


@pytest.mark.parametrize("elements", [1, 8192])
def test_forward_and_backward_do_not_grow_memory(elements: int) -> None:
    comm = weft.world()
    x = torch.ones(elements, requires_grad=True)
    ahead, behind = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def step() -> None:
        y = comm.all_reduce(x)
        comm.all_gather(x)
        weft.backward((y + comm.sendrecv(x, ahead, behind)).sum())
        x.grad = None

    for _ in range(500):  # fill the pools
        step()
    gc.collect()
    before = resident_bytes()
    passes = PASSES if comm.size <= 2 else PASSES // 10
    for _ in range(passes):
        step()
    gc.collect()
    assert resident_bytes() - before < 4 << 20
    assert weft.tape_length() == 0


def test_communicators_release_their_memory() -> None:
    comm = weft.world()
    for _ in range(300):  # more communicators than MPI libraries can hold at a time
        other = comm.dup()
        other.all_reduce(torch.ones(1))
        other.free()
