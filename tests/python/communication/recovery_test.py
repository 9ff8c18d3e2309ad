"""After a failure during a step, the next step is correct: the tapes of the ranks match again."""

from __future__ import annotations

from collections.abc import Iterator

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


def fail(_: torch.Tensor) -> None:
    raise ValueError("a hook that fails")


@pytest.fixture
def short_timeout() -> Iterator[None]:
    before = weft.configure(timeout=30)
    yield
    weft.configure(before)


def test_recovers_after_a_hook_fails_on_one_rank(rank: int, size: int) -> None:
    comm = weft.world()
    x = torch.ones(2, requires_grad=True)
    before = comm.all_reduce(x)
    if rank == size - 1:
        before.register_hook(fail)
    after = comm.all_reduce(before.sin())
    with pytest.raises((ValueError, RuntimeError)):
        weft.backward(after.sum())
        comm.all_reduce(torch.ones(1))  # a rank that was not waiting learns of the failure here at the latest
    assert torch.equal(step(comm), torch.full((2,), float(size)))


@pytest.mark.usefixtures("short_timeout")
@pytest.mark.parametrize("plain", [False, True])
def test_all_communicators_of_a_failed_backward_pass_recover(plain: bool, rank: int, size: int) -> None:
    """Regression: only the communicator that noticed the failure was rebuilt; the others raised PeerLost later."""
    comms = [weft.world(), weft.world().dup()]
    x = torch.ones(2, requires_grad=True)
    y = comms[0].all_reduce(comms[1].all_reduce(x))
    if rank == 0:
        y.register_hook(fail)
    with pytest.raises((ValueError, RuntimeError), match="a hook that fails"):
        y.sum().backward() if plain else weft.backward(y.sum())
    for comm in comms:
        assert torch.equal(step(comm), torch.full((2,), float(size)))


@pytest.mark.usefixtures("short_timeout")
@pytest.mark.parametrize("plain", [False, True])
def test_failure_reaches_ranks_through_another_communicator(plain: bool, rank: int, size: int) -> None:
    """Rank 2 waits for rank 1, which fails because rank 0 fails. Regression: rank 2 waited until the timeout."""
    if size != 3:
        pytest.skip("needs three ranks")
    left, right = (weft.world().split(0 if rank in ranks else None) for ranks in ((0, 1), (1, 2)))
    x = torch.ones(2, requires_grad=True)
    y = x if right is None else right.all_reduce(x)
    z = y if left is None else left.all_reduce(y)
    if rank == 0:
        z.register_hook(fail)
    with pytest.raises((ValueError, RuntimeError), match="a hook that fails"):
        z.sum().backward() if plain else weft.backward(z.sum())
    for comm in (left, right, weft.world()):
        if comm is not None:
            assert torch.equal(step(comm), torch.full((2,), float(comm.size)))


@pytest.mark.usefixtures("short_timeout")
def test_failure_reaches_ranks_that_wait_in_forward(rank: int, size: int) -> None:
    """Rank 2 waits for rank 1, which waits for rank 0 in forward. Regression: rank 2 waited until the timeout."""
    if size != 3:
        pytest.skip("needs three ranks")
    left, right = (weft.world().split(0 if rank in ranks else None) for ranks in ((0, 1), (1, 2)))
    with pytest.raises((ValueError, RuntimeError), match="a hook that fails"):
        if left is not None:
            y = left.all_reduce(torch.ones(2, requires_grad=True))
            if rank == 0:
                y.register_hook(fail)
                y.sum().backward()
            left.recv(source=0)
        assert right is not None
        right.all_reduce(torch.ones(2))
    weft.reset_tape()
    for comm in (left, right, weft.world()):
        if comm is not None:
            assert torch.equal(step(comm), torch.full((2,), float(comm.size)))


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
