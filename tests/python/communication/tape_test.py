"""Order of communication in backward: unused results, ranks without a loss, losses that miss operations."""

from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import weft

pytestmark = pytest.mark.usefixtures("works_afterwards")


def test_ranks_without_a_loss_take_part_in_backward(comm: weft.Communicator) -> None:
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    y = comm.all_reduce(x * (comm.rank + 1))
    weft.backward(y.square().sum() if comm.rank == 0 else None)
    total = comm.size * (comm.size + 1) / 2
    torch.testing.assert_close(x.grad, 2 * total * x.detach() * (comm.rank + 1))


def test_unused_results_do_not_block_backward(comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    used = comm.all_reduce(x)
    comm.all_gather(x * 2)
    comm.scan(x)
    weft.backward(used.sum())
    torch.testing.assert_close(x.grad, torch.full((2,), float(comm.size)))
    assert weft.tape_length() == 0


@pytest.mark.parametrize("wanting", range(4))
def test_backward_works_if_only_one_rank_requires_grad(wanting: int, comm: weft.Communicator) -> None:
    x = torch.full((2,), float(comm.rank), requires_grad=comm.rank == wanting % comm.size)
    y = comm.all_reduce(x)
    assert y.requires_grad
    weft.backward((y * (comm.rank + 1)).sum())
    if x.requires_grad:
        assert x.grad is not None and x.grad.tolist() == [comm.size * (comm.size + 1) / 2] * 2


def test_nothing_is_recorded_if_no_rank_requires_grad(comm: weft.Communicator) -> None:
    assert not comm.all_reduce(torch.ones(2)).requires_grad
    with torch.no_grad():
        assert not comm.all_reduce(torch.ones(2, requires_grad=True)).requires_grad
    assert weft.tape_length() == 0
    weft.backward(None)


def test_plain_backward_works_if_all_operations_reach_the_loss(comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    comm.all_reduce(comm.all_reduce(x) * x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((2,), 2.0 * comm.size**2))
    assert weft.tape_length() == 0


def test_plain_backward_names_an_operation_that_it_misses(comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    loss = comm.all_reduce(x).sum()
    unused = comm.all_gather(x)
    with pytest.raises(RuntimeError, match=r"does not reach all_gather on communicator 'world'.*weft\.backward"):
        loss.backward()
    del unused


def test_anchor_lets_plain_backward_reach_all_operations(comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    loss = comm.all_reduce(x).sum()
    comm.all_gather(x)
    weft.anchor(loss).backward()
    torch.testing.assert_close(x.grad, torch.full((2,), float(comm.size)))


def test_pruned_autograd_grad_raises_and_weft_grad_is_right(comm: weft.Communicator) -> None:
    x, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    loss = comm.all_reduce(comm.all_reduce(x) * w).sum()
    with pytest.raises(RuntimeError, match=r"skip communication before all_reduce.*weft\.grad"):
        torch.autograd.grad(loss, w)
    weft.reset_tape()
    loss = comm.all_reduce(comm.all_reduce(x) * w).sum()
    (gradient,) = weft.grad(loss, w)
    torch.testing.assert_close(gradient, torch.full((2,), float(comm.size**2)))
    assert x.grad is None and w.grad is None


def test_grad_gives_zeros_for_unreached_inputs(comm: weft.Communicator) -> None:
    x, other = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    gx, go = weft.grad(comm.all_reduce(x).sum(), [x, other])
    assert gx.tolist() == [comm.size] * 2 and go.tolist() == [0, 0, 0]


def test_second_backward_needs_retained_graph(comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    loss = comm.all_reduce(x.square()).sum()
    weft.backward(loss, retain_graph=True)
    weft.backward(loss)
    torch.testing.assert_close(x.grad, torch.full((2,), 4.0 * comm.size))


def test_double_backward_gives_second_derivatives(comm: weft.Communicator) -> None:
    x = torch.full((2,), 3.0, dtype=torch.float64, requires_grad=True)
    loss = comm.all_reduce(x.pow(3)).sum()
    (g,) = weft.grad(loss, x, create_graph=True)
    (gg,) = weft.grad(g.sum(), x)
    torch.testing.assert_close(gg, 6 * x.detach() * comm.size)


def test_nested_tape_is_independent(comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    outer = comm.all_reduce(x)
    with weft.tape():
        inner = comm.all_reduce(x * 2)
        assert weft.tape_length() == 1
        inner.sum().backward()
    assert weft.tape_length() == 1
    outer.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((2,), 3.0 * comm.size))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_checkpointed_communication_raises_on_all_ranks(grad: bool, reentrant: bool, comm: weft.Communicator) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.set_grad_enabled(grad and torch.is_grad_enabled()):
            return x.sin() * comm.all_reduce(x.sin())

    # Already in the first forward pass, although only rank 0 uses a checkpoint.
    with pytest.raises(RuntimeError, match=r"inside torch\.utils\.checkpoint"):
        x = torch.ones(2, requires_grad=grad or comm.rank == 0)
        checkpoint(function, x, use_reentrant=reentrant) if comm.rank == 0 else function(x)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_messages_raise(reentrant: bool, comm: weft.Communicator) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return comm.sendrecv(x, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size)

    with pytest.raises(RuntimeError, match=r"inside torch\.utils\.checkpoint"):
        checkpoint(function, torch.ones(2, requires_grad=True), use_reentrant=reentrant)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_without_gradients_may_communicate(reentrant: bool, comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        y = checkpoint(comm.all_reduce, x, use_reentrant=reentrant)
    assert y.tolist() == [comm.size] * 2
    checkpoint(torch.sin, x, use_reentrant=reentrant)
    assert comm.all_reduce(x).tolist() == [comm.size] * 2


def test_hooks_may_communicate(comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    y = x.sin()
    y.register_hook(comm.all_reduce)
    y.sum().backward()
    torch.testing.assert_close(x.grad, comm.size * torch.cos(x.detach()))


def test_communication_outside_of_a_checkpoint_works(comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    weft.backward(comm.all_reduce(checkpoint(torch.sin, x, use_reentrant=False)).sum())
    torch.testing.assert_close(x.grad, comm.size * torch.cos(x.detach()))


def fail(_: torch.Tensor) -> None:
    raise ValueError("bad batch")


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("position", ["before", "between", "after"])
def test_exception_in_a_hook_reaches_other_ranks(position: str, plain: bool, comm: weft.Communicator) -> None:
    """The hook runs in backward before the first, between two or after the last communication of rank 0."""
    x = torch.ones(2, requires_grad=True)
    y = comm.all_reduce(x)
    z = y * 2
    w = comm.all_reduce(z) * 2
    if comm.rank == 0:
        {"before": w, "between": z, "after": x}[position].register_hook(fail)
    backward = (lambda loss: loss.backward()) if plain else weft.backward
    if comm.rank == 0:
        with pytest.raises(ValueError, match="bad batch"):
            backward(w.sum())
    elif position == "after":
        backward(w.sum())  # does not need rank 0 any more
        with pytest.raises(weft.PeerLost, match=r"rank 0 failed.*bad batch"):
            while True:
                comm.barrier()
    else:
        with pytest.raises(RuntimeError, match=r"rank 0 failed.*bad batch") as lost:
            backward(w.sum())
        assert plain or (isinstance(lost.value, weft.PeerLost) and lost.value.rank == 0)
    assert weft.tape_length() == 0


@pytest.mark.parametrize("run", [torch.autograd.grad, torch.autograd.backward])
def test_exception_in_autograd_functions_reaches_other_ranks(run: Any, comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    loss = comm.all_reduce(comm.all_reduce(y)).sum()
    if comm.rank == 0:
        loss.register_hook(fail)
    with pytest.raises((ValueError, RuntimeError), match="bad batch"):
        run(loss, x) if run is torch.autograd.grad else run(loss)


def test_exception_in_a_local_backward_does_not_concern_other_ranks(comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    y = comm.all_reduce(x)
    local = x * 2
    local.register_hook(fail)
    if comm.rank == 0:
        with pytest.raises(ValueError, match="bad batch"):
            local.sum().backward()
    weft.backward(y.sum())
    torch.testing.assert_close(x.grad, torch.full((2,), float(comm.size)))
