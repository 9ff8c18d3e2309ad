"""Defects of mpi4torch 0.1.3, which would fail every test in this file."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import mpi4torch
import pytest
import torch

import weft

comm = mpi4torch.COMM_WORLD
RANK, SIZE = comm.rank, comm.size
RIGHT, LEFT = (RANK + 1) % SIZE, (RANK - 1) % SIZE

several = pytest.mark.skipif(SIZE == 1, reason="needs two ranks")


@pytest.fixture
def spare() -> Iterator[mpi4torch.MPI_Communicator]:
    """A communicator on which a test may fail. A failure interrupts all communicators of a rank, so all recover."""
    yield comm.Dup()
    try:
        comm.Barrier()
    except RuntimeError as error:
        assert "PeerLost" in str(error)
        comm.Barrier()


@contextmanager
def impatience(ranks: mpi4torch.MPI_Communicator) -> Iterator[None]:
    """After a barrier, reduces the timeout to two seconds."""
    ranks.Barrier()
    before = weft.configure(timeout=2.0)
    yield
    weft.configure(before)


# 1. Gradient of Allgather


def test_allgather_gradient_sums_every_ranks_piece() -> None:
    x = torch.ones(2, dtype=torch.double, requires_grad=True)
    y = comm.Allgather(x, 0)
    y.backward((RANK + 1) * torch.tensor([1.0, 2.0], dtype=torch.double).repeat(SIZE))
    total = SIZE * (SIZE + 1) / 2
    torch.testing.assert_close(x.grad, torch.tensor([total, 2 * total], dtype=torch.double))


# 2. Equal tags


def test_receives_of_equal_tag_can_be_waited_for_out_of_order() -> None:
    first = torch.tensor([1.0], requires_grad=True)
    second = torch.tensor([2.0], requires_grad=True)
    out = [comm.Isend(x, RIGHT, 4) for x in (first, second)]
    dummies = [request.dummy for request in out]
    into = [comm.Irecv(mpi4torch.JoinDummies(torch.empty(1), dummies), LEFT, 4) for _ in range(2)]
    late = comm.Wait(into[1])
    early = comm.Wait(into[0])
    assert (early.item(), late.item()) == (1.0, 2.0)
    sent = [comm.Wait(mpi4torch.JoinDummiesHandle(request, [early, late])) for request in out]
    mpi4torch.JoinDummies(10 * early + 20 * late, sent).sum().backward()
    assert first.grad is not None and second.grad is not None
    assert (first.grad.item(), second.grad.item()) == (10.0, 20.0)


# 3. Axes, types, MINLOC


def test_negative_axes_count_from_the_end() -> None:
    x = torch.full((2, 1), float(RANK))
    assert comm.Allgather(x, -1).tolist() == [list(map(float, range(SIZE)))] * 2
    assert comm.Gather(x, -1, 0).shape == ((2, SIZE) if RANK == 0 else (2, 0))
    assert comm.Scatter(torch.arange(2.0 * SIZE).reshape(2, SIZE), -1, 1, 0).flatten().tolist() == [RANK, SIZE + RANK]
    assert comm.Alltoall(torch.ones(1, 3 * SIZE), -2, -1, 3).shape == (SIZE, 3)
    assert comm.Alltoall(torch.ones(2, 3), -1, 1, 3).shape == (2, 3)


@pytest.mark.parametrize("axis", [2, -3])
def test_axis_out_of_range_raises(axis: int) -> None:
    with pytest.raises((RuntimeError, IndexError), match="dimension"):
        comm.Allgather(torch.ones(2, 2), axis)


@pytest.mark.parametrize("dtype", [torch.bool, torch.half, torch.bfloat16, torch.complex64, torch.complex128])
def test_supports_bool_half_precision_and_complex(dtype: torch.dtype) -> None:
    x = torch.ones(3).to(dtype)
    reduced = comm.Allreduce(x, mpi4torch.MPI_SUM)
    assert reduced.dtype == dtype
    torch.testing.assert_close(reduced, (torch.ones(3) * SIZE).to(dtype))
    torch.testing.assert_close(comm.Allgather(x, 0), torch.ones(3 * SIZE).to(dtype))
    torch.testing.assert_close(comm.Sendrecv(x, RIGHT, 0, torch.zeros(3).to(dtype), LEFT, 0), x)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.complex64])
def test_gradients_keep_their_dtype(dtype: torch.dtype) -> None:
    x = torch.ones(2, dtype=dtype, requires_grad=True)
    comm.Allreduce(x, mpi4torch.MPI_SUM).backward(torch.full((2,), 2.0).to(dtype))
    torch.testing.assert_close(x.grad, torch.full((2,), 2.0 * SIZE).to(dtype))


@pytest.mark.parametrize("op", [mpi4torch.MPI_MINLOC, mpi4torch.MPI_MAXLOC])
def test_reductions_of_pairs_are_rejected(op: int) -> None:
    with pytest.raises(RuntimeError, match="MPI_MINLOC and MPI_MAXLOC reduce pairs"):
        comm.Allreduce(torch.ones(2), op)
    # No communication took place: the next operation works.
    assert comm.Allreduce(torch.ones(1), mpi4torch.MPI_SUM).item() == SIZE


@several
def test_rejection_reaches_ranks_with_valid_calls() -> None:
    with pytest.raises(RuntimeError, match="MPI_MINLOC and MPI_MAXLOC reduce pairs"):
        comm.Allreduce(torch.ones(2), mpi4torch.MPI_MINLOC if RANK == 0 else mpi4torch.MPI_SUM)
    assert comm.Allreduce(torch.ones(1), mpi4torch.MPI_SUM).item() == SIZE


# 4. Gradients of maximum, minimum and product


@pytest.mark.parametrize("method", ["Allreduce", "Reduce_"])
@pytest.mark.parametrize("op", ["MAX", "MIN", "PROD"])
def test_nonlinear_reductions_have_gradients(method: str, op: str) -> None:
    values = torch.stack([torch.tensor([r + 1.0, 2.0, 0.0 if r == 0 else 3.0]) for r in range(SIZE)]).double()
    reference = values.clone().requires_grad_()
    reduce = {"MAX": torch.amax, "MIN": torch.amin, "PROD": torch.prod}[op]
    losses = SIZE if method == "Allreduce" else 1
    (losses * reduce(reference, 0) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()

    x = values[RANK].clone().requires_grad_()
    arguments = [0] if method == "Reduce_" else []
    y = getattr(comm, method)(x + 0.0, getattr(mpi4torch, f"MPI_{op}"), *arguments)
    (y * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert reference.grad is not None
    torch.testing.assert_close(x.grad, reference.grad[RANK])


# 5. Results that a rank does not use


@several
def test_unused_result_times_out_on_the_sender(spare: mpi4torch.MPI_Communicator) -> None:
    """Without a tape the receiver does not know that the sender waits, but the sender times out."""
    sent = torch.ones(2, requires_grad=True)
    if RANK == 0:
        sent = spare.Send(sent, 1, 0)
    elif RANK == 1:
        spare.Recv(torch.empty(2), 0, 0)
    with impatience(spare):
        if RANK == 0:
            with pytest.raises(RuntimeError, match="no message arrived from rank 1"):
                sent.sum().backward()


@several
def test_send_without_a_dependent_loss_is_detected(spare: mpi4torch.MPI_Communicator) -> None:
    """mpi4torch gives 1 here; the correct gradient is 2."""
    x = torch.ones(2, requires_grad=True)
    request = spare.Isend(x, RIGHT, 0)
    received = spare.Recv(torch.empty(2), LEFT, 0)
    spare.Wait(request)
    told = r"does not receive the gradient of a tensor that it sent|PeerLost"
    with impatience(spare), pytest.raises(RuntimeError, match=told):
        (x + received).sum().backward()


@several
def test_pruned_communication_is_detected(spare: mpi4torch.MPI_Communicator) -> None:
    """Rank 0 requests a gradient whose graph omits the Allreduce of the other ranks."""
    x = torch.ones(2, requires_grad=True)
    other = torch.ones(2, requires_grad=True)
    loss = (spare.Allreduce(x, mpi4torch.MPI_SUM) + other).sum()
    with impatience(spare):
        if RANK == 0:
            torch.autograd.grad(loss, [other])
        else:
            with pytest.raises(RuntimeError, match=r"TimeoutError|PeerLost"):
                loss.backward()


# 6. Counts, buffers, sources, pickling


def test_long_transfers_are_split_into_several_mpi_calls() -> None:
    """Counts are 64 bits wide; a small limit splits the transfer as 2^31 elements would."""
    before = weft.configure(max_count=7)
    try:
        x = torch.arange(2000, dtype=torch.double, requires_grad=True)
        received = comm.Sendrecv(x, RIGHT, 0, torch.empty_like(x), LEFT, 0)
        gathered = comm.Allgather(comm.Allreduce(received, mpi4torch.MPI_SUM)[:20], 0)
        gathered.sum().backward()
        torch.testing.assert_close(gathered.detach(), (torch.arange(20).double() * SIZE).repeat(SIZE))
        torch.testing.assert_close(x.grad, torch.cat([torch.full((20,), SIZE * SIZE), torch.zeros(1980)]).double())
    finally:
        weft.configure(before)


@pytest.mark.parametrize("length", [3, 3000])
def test_receive_buffer_may_be_non_contiguous(length: int) -> None:
    x = torch.full((length,), float(RANK), requires_grad=True)
    memory = torch.full((length, 2), -1.0)
    out = comm.Isend(x, RIGHT, 0)
    received = comm.Recv(mpi4torch.JoinDummies(memory[:, 1], [out.dummy]), LEFT, 0)
    sent = comm.Wait(mpi4torch.JoinDummiesHandle(out, [received]))
    assert memory[:, 1].eq(LEFT).all() and memory[:, 0].eq(-1).all()
    mpi4torch.JoinDummies(received * RANK, [sent]).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((length,), float(RIGHT)))


@several
def test_any_source_and_any_tag_match_all_messages() -> None:
    if RANK > 0:
        x = torch.full((2,), float(RANK), requires_grad=True)
        comm.Send(x, 0, RANK).sum().mul(0).backward()
        torch.testing.assert_close(x.grad, torch.full((2,), 10.0 * RANK))
        return
    received = [comm.Recv(torch.empty(2), mpi4torch.MPI_ANY_SOURCE, mpi4torch.MPI_ANY_TAG) for _ in range(1, SIZE)]
    assert sorted(y[0].item() for y in received) == list(range(1, SIZE))
    sum((10 * y.detach() * y).sum() for y in received).backward()


def test_any_source_equals_mpi4pys() -> None:
    MPI = pytest.importorskip("mpi4py.MPI")
    if len(weft._interop.mpi_libraries()) > 1:
        pytest.skip("mpi4py uses a different MPI library")
    assert (mpi4torch.MPI_ANY_SOURCE, mpi4torch.MPI_ANY_TAG) == (MPI.ANY_SOURCE, MPI.ANY_TAG)


def test_world_survives_pickling() -> None:
    restored = pickle.loads(pickle.dumps(comm))
    assert (restored.rank, restored.size) == (RANK, SIZE)
    assert restored.Allreduce(torch.ones(1), mpi4torch.MPI_SUM).item() == SIZE


def test_supports_forward_mode_differentiation() -> None:
    x, t = torch.ones(2), torch.full((2,), RANK + 1.0)
    value, tangent = torch.func.jvp(lambda v: comm.Allreduce(v, mpi4torch.MPI_SUM) ** 2, (x,), (t,))
    torch.testing.assert_close(value, torch.full((2,), float(SIZE**2)))
    torch.testing.assert_close(tangent, torch.full((2,), 2.0 * SIZE * SIZE * (SIZE + 1) / 2))


def test_incompatible_shapes_are_reported(spare: mpi4torch.MPI_Communicator) -> None:
    with pytest.raises(RuntimeError, match=r"receives into .*, but rank \d+ sent float32\[3\]"):
        spare.Isend(torch.ones(3), RIGHT, 0)
        spare.Recv(torch.empty(2), LEFT, 0)


# 7. It is built and installed with weft, for the current torch: the import at the top tests this.
