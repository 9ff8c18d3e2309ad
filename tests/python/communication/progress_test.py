"""Progress of messages while a rank waits in another call, and operations off the tape."""

from __future__ import annotations

import torch

import weft

LARGE = 1 << 20  # elements: well above the eager limit of MPI


def test_blocking_send_progresses_a_posted_receive(rank: int, size: int) -> None:
    comm = weft.world()
    x = torch.full((LARGE,), float(rank))
    receiving = comm.irecv(source=(rank - 1) % size)
    comm.send(x, dest=(rank + 1) % size)  # the peer is in its own send and must receive this one meanwhile
    assert torch.equal(receiving.wait(), torch.full((LARGE,), float((rank - 1) % size)))


def test_barrier_progresses_a_posted_receive(rank: int, size: int) -> None:
    comm = weft.world()
    receiving = comm.irecv(source=0) if rank == size - 1 else None
    if rank == 0:
        comm.isend(torch.ones(LARGE), dest=size - 1).wait() if size > 1 else comm.isend(torch.ones(LARGE), dest=0)
    comm.barrier()
    if receiving is not None:
        assert torch.equal(receiving.wait(), torch.ones(LARGE))


def test_second_derivatives_without_a_tape_record_nothing(size: int) -> None:
    comm = weft.world()
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    with weft.tape(False):
        y = (comm.all_reduce(x**3) + comm.all_reduce(x**2)).sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
    assert weft.tape_length() == 0
    assert torch.allclose(second, size * (6 * x.detach() + 2))
