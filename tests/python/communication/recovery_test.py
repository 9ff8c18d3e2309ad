"""After a failure during a step, the next step is correct: the tapes of the ranks match again."""

from __future__ import annotations

import pytest
import torch

import weft


def step(comm: weft.Communicator) -> torch.Tensor:
    """Runs a step with two operations of known gradients: n for the first, none through the second."""
    w = torch.ones(2, requires_grad=True)
    total = comm.all_reduce(w)
    comm.all_reduce(w * 2)  # unused
    weft.backward(total.sum())
    assert w.grad is not None
    return w.grad


def test_recovers_after_a_hook_fails_on_one_rank(rank: int, size: int) -> None:
    comm = weft.world()
    x = torch.ones(2, requires_grad=True)
    before = comm.all_reduce(x)
    if rank == size - 1:

        def fail(_: torch.Tensor) -> None:
            raise ValueError("a hook that fails")

        before.register_hook(fail)
    after = comm.all_reduce(before.sin())
    with pytest.raises((ValueError, RuntimeError)):
        weft.backward(after.sum())
        comm.all_reduce(torch.ones(1))  # a rank that was not waiting learns of the failure here at the latest
    assert torch.equal(step(comm), torch.full((2,), float(size)))


def test_recovers_after_a_loss_misses_an_operation_on_one_rank(rank: int, size: int) -> None:
    comm = weft.world()
    x = torch.ones(2, requires_grad=True)
    first = comm.all_reduce(x)
    second = comm.all_reduce(x * 3)
    loss = first.sum() if rank == 0 else (first + second).sum()
    with pytest.raises(RuntimeError):
        loss.backward()
        comm.all_reduce(torch.ones(1))
    assert torch.equal(step(comm), torch.full((2,), float(size)))


def test_recovers_after_a_peer_fails_in_forward(rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("needs a peer")
    comm = weft.world()
    x = torch.ones(2, requires_grad=True)
    comm.all_reduce(x)
    if rank == 0:
        torch.ops.weft.alarm("rank 0 gives up")
        weft.reset_tape()
    else:
        with pytest.raises(weft.PeerLost, match="rank 0 gives up"):
            comm.all_reduce(x)
            comm.all_reduce(x)
    assert torch.equal(step(comm), torch.full((2,), float(size)))
