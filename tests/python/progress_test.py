"""What goes on while a rank waits for something else, and what stays off the tape."""

from __future__ import annotations

import torch

import weft

LARGE = 1 << 20  # elements: far more than MPI sends without asking the receiver


def test_receive_posted_before_a_blocking_send(rank: int, size: int) -> None:
    comm = weft.world()
    x = torch.full((LARGE,), float(rank))
    receiving = comm.irecv(source=(rank - 1) % size)
    comm.send(x, dest=(rank + 1) % size)  # its peer is in its own send, and must fetch this one meanwhile
    assert torch.equal(receiving.wait(), torch.full((LARGE,), float((rank - 1) % size)))


def test_receive_posted_before_a_barrier(rank: int, size: int) -> None:
    comm = weft.world()
    receiving = comm.irecv(source=0) if rank == size - 1 else None
    if rank == 0:
        comm.isend(torch.ones(LARGE), dest=size - 1).wait() if size > 1 else comm.isend(torch.ones(LARGE), dest=0)
    comm.barrier()
    if receiving is not None:
        assert torch.equal(receiving.wait(), torch.ones(LARGE))


def test_second_derivatives_off_the_tape_stay_off_it(size: int) -> None:
    comm = weft.world()
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    with weft.tape(False):
        y = (comm.all_reduce(x**3) + comm.all_reduce(x**2)).sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
    assert weft.tape_length() == 0
    assert torch.allclose(second, size * (6 * x.detach() + 2))
