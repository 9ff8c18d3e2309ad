"""The drop-in mpi4torch: methods, gradients, error messages, and TorchScript."""

import copy
import os
import pickle
import sys

import mpi4torch
import pytest
import torch
from resident import resident_bytes

comm = mpi4torch.COMM_WORLD
RANK, SIZE = comm.rank, comm.size
RIGHT, LEFT = (RANK + 1) % SIZE, (RANK - 1) % SIZE
LEFT_OF_ROOT = SIZE - 1


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.double, requires_grad=True)


def weights(*shape: int, rank: int = RANK) -> torch.Tensor:
    """Returns a gradient that differs between ranks and elements."""
    count = int(torch.Size(shape).numel())
    return (torch.arange(1, count + 1, dtype=torch.double) + 10 * rank).reshape(shape)


def assert_equal(got: torch.Tensor | None, expected: torch.Tensor) -> None:
    assert got is not None
    torch.testing.assert_close(got, expected)


def test_rank_and_size(rank: int, size: int) -> None:
    assert (comm.rank, comm.size) == (rank, size)


def test_constants() -> None:
    names = "MAX MIN SUM PROD LAND BAND LOR BOR LXOR BXOR MINLOC MAXLOC".split()
    assert [getattr(mpi4torch, f"MPI_{name}") for name in names] == list(range(12))


# Collective methods


def test_allreduce() -> None:
    x = leaf(1 + RANK, 2)
    y = comm.Allreduce(x, mpi4torch.MPI_SUM)
    (y * weights(2)).sum().backward()
    assert_equal(y.detach(), torch.tensor([SIZE * (SIZE + 1) / 2, 2 * SIZE], dtype=torch.double))
    assert_equal(x.grad, sum(weights(2, rank=r) for r in range(SIZE)))


def test_allreduce_twice_differentiable() -> None:
    x = leaf(1.0 + RANK)
    y = comm.Allreduce(x, mpi4torch.MPI_SUM)
    (first,) = torch.autograd.grad(y.pow(3).sum(), x, create_graph=True)
    total = SIZE * (SIZE + 1) / 2
    assert_equal(first.detach(), torch.tensor([3 * SIZE * total**2], dtype=torch.double))
    (second,) = torch.autograd.grad(first.sum(), x)
    assert_equal(second, torch.tensor([6 * SIZE**2 * total], dtype=torch.double))


def test_bcast_writes_in_place() -> None:
    x = leaf(RANK, RANK + 1)
    y = comm.Bcast_(x, SIZE - 1)
    assert y.data_ptr() == x.data_ptr()
    (y * weights(2)).sum().backward()
    assert_equal(x.detach(), torch.tensor([SIZE - 1.0, SIZE], dtype=torch.double))
    expected = sum(weights(2, rank=r) for r in range(SIZE))
    assert_equal(x.grad, expected if RANK == SIZE - 1 else torch.zeros_like(expected))


def test_bcast_supports_non_contiguous_tensors() -> None:
    whole = torch.full((4, 3), float(RANK))
    y = comm.Bcast_(whole[:, 1], 0)
    assert_equal(y, torch.zeros(4))
    assert_equal(whole, torch.tensor([[RANK, 0.0, RANK]] * 4))


def test_reduce_zeroes_the_other_ranks() -> None:
    x = leaf(1, 1 + RANK)
    y = comm.Reduce_(x, mpi4torch.MPI_SUM, 0)
    assert y.data_ptr() == x.data_ptr()
    (y * weights(2)).sum().backward()
    expected = torch.tensor([SIZE, SIZE * (SIZE + 1) / 2], dtype=torch.double)
    assert_equal(y.detach(), expected if RANK == 0 else torch.zeros_like(expected))
    assert_equal(x.grad, weights(2, rank=0))


def test_gather_of_uneven_pieces() -> None:
    x = torch.full((2, RANK + 1), float(RANK), dtype=torch.double, requires_grad=True)
    y = comm.Gather(x, 1, 0)
    total = SIZE * (SIZE + 1) // 2
    assert y.shape == ((2, total) if RANK == 0 else (2, 0))
    seen = weights(2, total, rank=0)
    (y * (seen if RANK == 0 else 1)).sum().backward()
    start = RANK * (RANK + 1) // 2
    assert_equal(x.grad, seen[:, start : start + RANK + 1])


def test_allgather_of_uneven_pieces() -> None:
    x = torch.full((RANK + 1,), float(RANK), dtype=torch.double, requires_grad=True)
    y = comm.Allgather(x, 0)
    assert_equal(y.detach(), torch.cat([torch.full((r + 1,), float(r), dtype=torch.double) for r in range(SIZE)]))
    (y * weights(len(y))).sum().backward()
    start = RANK * (RANK + 1) // 2
    assert_equal(x.grad, sum(weights(len(y), rank=r) for r in range(SIZE))[start : start + RANK + 1])


def test_scatter_ignores_other_ranks_tensors() -> None:
    total = SIZE * (SIZE + 1) // 2
    root = SIZE - 1
    x = weights(total, 2, rank=0).requires_grad_() if root == RANK else torch.rand(1, 3).requires_grad_()
    y = comm.Scatter(x, 0, RANK + 1, root)
    start = RANK * (RANK + 1) // 2
    assert_equal(y.detach(), weights(total, 2, rank=0)[start : start + RANK + 1])
    y.mul(RANK + 1).sum().backward()
    if root == RANK:
        owner = torch.repeat_interleave(torch.arange(1.0, SIZE + 1), torch.arange(1, SIZE + 1)).double()
        assert_equal(x.grad, owner.unsqueeze(1).expand(-1, 2))
    else:
        assert_equal(x.grad, torch.zeros(1, 3))


def test_alltoall_between_axes() -> None:
    total = SIZE * (SIZE + 1) // 2
    x = weights(RANK + 1, total).requires_grad_()
    y = comm.Alltoall(x, 0, 1, RANK + 1)
    whole = torch.cat([weights(r + 1, total, rank=r) for r in range(SIZE)])
    start = RANK * (RANK + 1) // 2
    assert_equal(y.detach(), whole[:, start : start + RANK + 1])
    (y * (RANK + 1)).sum().backward()
    owner = torch.repeat_interleave(torch.arange(1.0, SIZE + 1), torch.arange(1, SIZE + 1)).double()
    assert_equal(x.grad, owner.expand(RANK + 1, -1))


def test_alltoall_along_one_axis_repartitions() -> None:
    total = SIZE * (SIZE + 1) // 2
    start = RANK * (RANK + 1) // 2
    x = torch.arange(total, dtype=torch.double)[start : start + RANK + 1].requires_grad_()
    y = comm.Alltoall(x, 0, 0, SIZE - RANK)
    new_start = total - (SIZE - RANK) * (SIZE - RANK + 1) // 2
    assert_equal(y.detach(), torch.arange(new_start, new_start + SIZE - RANK, dtype=torch.double))
    (y * y.detach()).sum().backward()  # the gradient of each element is its number
    assert_equal(x.grad, x.detach())


# Point-to-point messages


def test_ring_with_dummies() -> None:
    x = leaf(1, 2)
    request = comm.Isend(x, RIGHT, 3)
    received = comm.Recv(mpi4torch.JoinDummies(torch.empty_like(x), [request.dummy]), LEFT, 3)
    sent = comm.Wait(mpi4torch.JoinDummiesHandle(request, [received]))
    (mpi4torch.JoinDummies(received, [sent]) * weights(2)).sum().backward()
    assert_equal(x.grad, weights(2, rank=RIGHT))


def test_received_tensor_is_in_the_buffer() -> None:
    buffer = torch.empty(3)
    request = comm.Irecv(buffer, LEFT, 0)
    comm.Send(torch.full((3,), float(RANK)), RIGHT, 0)
    received = comm.Wait(request)
    assert received.data_ptr() == buffer.data_ptr()
    assert_equal(buffer, torch.full((3,), float(LEFT)))


def test_send_returns_the_tensor_with_its_gradient() -> None:
    x = leaf(5)
    request = comm.Irecv(mpi4torch.JoinDummies(torch.empty_like(x), [x]), LEFT, 0)
    sent = comm.Send(x, RIGHT, 0)
    received = comm.Wait(mpi4torch.JoinDummiesHandle(request, [sent]))
    (2 * sent + received).sum().backward()
    assert_equal(x.grad, torch.tensor([3.0], dtype=torch.double))


def test_sender_gets_zeros_if_the_result_is_not_used() -> None:
    """The sender gets zeros if the receiver's loss depends on the handle."""
    x = leaf(1, 2)
    out = comm.Isend(x, RIGHT, 0)
    back = comm.Irecv(mpi4torch.JoinDummies(torch.empty_like(x), [out.dummy]), LEFT, 0)
    comm.Wait(back)
    comm.Wait(out)
    mpi4torch.JoinDummies(x.sum(), [back.dummy]).backward()
    assert_equal(x.grad, torch.ones_like(x))


def test_ring_twice_differentiable() -> None:
    x = leaf(1.0 + RANK)
    received = comm.Sendrecv(x, RIGHT, 0, torch.empty_like(x), LEFT, 0)
    (first,) = torch.autograd.grad(received.pow(3).sum(), x, create_graph=True)
    assert_equal(first.detach(), 3 * x.detach() ** 2)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert_equal(second, 6 * x.detach())


def test_retained_graph_can_be_used_again() -> None:
    x = leaf(1, 2)
    loss = (comm.Sendrecv(x, RIGHT, 0, torch.empty_like(x), LEFT, 0) * weights(2)).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert_equal(x.grad, 2 * weights(2, rank=RIGHT))


def test_large_message_progresses_during_a_collective_operation() -> None:
    request = comm.Irecv(torch.empty(1_000_000), LEFT, 0) if RANK == 0 else None
    if RANK == LEFT_OF_ROOT:
        comm.Send(torch.ones(1_000_000), 0, 0)
    comm.Barrier()
    if request is not None:
        assert comm.Wait(request).eq(1).all()


def test_proc_null_sends_and_receives_nothing() -> None:
    x = leaf(1, 2)
    out = comm.Isend(x, mpi4torch.MPI_PROC_NULL, 0)
    kept = comm.Wait(comm.Irecv(torch.full((2,), 7.0), mpi4torch.MPI_PROC_NULL, 0))
    comm.Wait(out).sum().backward()
    assert_equal(kept, torch.full((2,), 7.0))
    assert_equal(x.grad, torch.ones_like(x))


def test_abandoned_handles_do_not_block() -> None:
    for _ in range(50):
        comm.Irecv(torch.empty(2), LEFT, 77)
    comm.Barrier()


# JoinDummies


def test_join_dummies_returns_its_argument_if_nothing_requires_grad() -> None:
    x = leaf(1)
    assert mpi4torch.JoinDummies(x, [torch.ones(2)]) is x
    assert mpi4torch.JoinDummies(x, []) is x
    with torch.no_grad():
        assert mpi4torch.JoinDummies(x, [leaf(1)]) is x


def test_dummies_get_zeros() -> None:
    x, dummy = leaf(1, 2), leaf(3)
    joined = mpi4torch.JoinDummies(x, [torch.ones(1), dummy])
    assert joined.data_ptr() == x.data_ptr()
    (joined * weights(2)).sum().backward()
    assert_equal(x.grad, weights(2))
    assert_equal(dummy.grad, torch.zeros(1, dtype=torch.double))


def test_join_dummies_makes_a_tensor_require_grad() -> None:
    dummy = leaf(3)
    joined = mpi4torch.JoinDummies(torch.ones(2), [dummy])
    assert joined.requires_grad
    joined.sum().backward()
    assert_equal(dummy.grad, torch.zeros(1, dtype=torch.double))


def test_join_dummies_rejects_integers() -> None:
    with pytest.raises(RuntimeError, match="floating-point or complex"):
        mpi4torch.JoinDummies(torch.ones(2, dtype=torch.long), [leaf(1)])


# Error messages that users rely on


def test_backward_of_a_logical_reduction_raises() -> None:
    # A rank that is slower sees the failure of the others in its own forward call.
    with pytest.raises(RuntimeError, match="This backward operation is currently unimplemented!"):
        y = comm.Allreduce(leaf(1, 0), mpi4torch.MPI_LAND)
        assert_equal(y.detach(), torch.tensor([1.0, 0.0], dtype=torch.double))
        y.sum().backward()
    comm.Barrier()


@pytest.mark.parametrize("method", ["Allreduce", "Reduce_", "Scan"])
@pytest.mark.parametrize("op", [-1, 12])
def test_unknown_reduction_raises(method: str, op: int) -> None:
    with pytest.raises(RuntimeError, match="mpi4torch: Collective operation not supported!"):
        getattr(comm, method)(torch.ones(1), op, *([0] if method == "Reduce_" else []))


@pytest.mark.parametrize("method", ["Reduce_", "Bcast_"])
def test_reuse_after_an_in_place_operation_raises(method: str) -> None:
    x = leaf(1, 2) + 0.0
    arguments = [mpi4torch.MPI_SUM, 0] if method == "Reduce_" else [0]
    # A rank that is slower sees the failure of the others in its own forward call.
    with pytest.raises(RuntimeError, match="Reuse of variables passed to in-place MPI kernels not supported!"):
        y = x + getattr(comm, method)(x, *arguments)
        y.sum().backward()
    comm.Barrier()


def test_use_before_an_in_place_operation_is_allowed() -> None:
    x = leaf(1, 2)
    moved = x + 0.0
    used = 3 * moved
    y = used + comm.Bcast_(moved, 0)
    y.sum().backward()
    assert_equal(x.grad, torch.full((2,), 3.0 + (SIZE if RANK == 0 else 0), dtype=torch.double))


def test_waiting_twice_for_a_handle_raises() -> None:
    out = comm.Isend(torch.ones(2), RIGHT, 0)
    handle = comm.Irecv(torch.empty(2), LEFT, 0)
    comm.Wait(handle)
    with pytest.raises(RuntimeError, match="Detected bifurcation in MPIWait handle usage"):
        comm.Wait(handle)
    comm.Wait(out)
    with pytest.raises(RuntimeError, match="Detected bifurcation in MPIWait handle usage"):
        comm.Wait(mpi4torch.JoinDummiesHandle(out, [leaf(1)]))


def test_wait_rejects_other_tensors() -> None:
    with pytest.raises(RuntimeError, match="Wait expects a handle"):
        comm.Wait(mpi4torch.WaitHandle([torch.zeros(1), torch.zeros(1, dtype=torch.long)]))


def test_missing_mpi4py_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    with pytest.raises(RuntimeError, match="mpi4py is not available!"):
        mpi4torch.comm_from_mpi4py(object())


def test_mpi4py_communicator_can_be_converted() -> None:
    MPI = pytest.importorskip("mpi4py.MPI")
    pair = MPI.COMM_WORLD.Split(RANK % 2, RANK)
    ours = mpi4torch.comm_from_mpi4py(pair)
    assert (ours.rank, ours.size) == (pair.rank, pair.size)
    assert_equal(ours.Allreduce(torch.ones(1), mpi4torch.MPI_SUM), torch.full((1,), float(pair.size)))


def test_cuda_aware_support_can_be_turned_off() -> None:
    import weft

    before = weft.options()
    mpi4torch.deactivate_cuda_aware_mpi_support()
    assert not weft.options().cuda_aware
    weft.configure(before)


# TorchScript


@torch.jit.script
def scripted_collectives(x: torch.Tensor, c: mpi4torch.MPI_Communicator) -> torch.Tensor:
    y = c.Allreduce(x, mpi4torch.MPI_SUM) * c.rank
    return c.Bcast_(y + c.size, 0)


@torch.jit.script
def scripted_ring(x: torch.Tensor, c: mpi4torch.MPI_Communicator) -> torch.Tensor:
    request = c.Isend(x, (c.rank + 1) % c.size, 0)
    buffer = mpi4torch.JoinDummies(torch.empty_like(x), [request.dummy])
    received = c.Recv(buffer, (c.rank + c.size - 1) % c.size, 0)
    sent = c.Wait(mpi4torch.JoinDummiesHandle(request, [received]))
    return mpi4torch.JoinDummies(received, [sent])


def test_torchscript_collectives() -> None:
    x = leaf(1, 2)
    y = scripted_collectives(x, comm)
    assert_equal(y.detach(), torch.full((2,), float(SIZE), dtype=torch.double))
    y.sum().backward()
    assert_equal(x.grad, torch.zeros_like(x))  # the factor of rank 0 is 0


def test_torchscript_ring() -> None:
    x = leaf(1, 2)
    (scripted_ring(x, comm) * weights(2)).sum().backward()
    assert_equal(x.grad, weights(2, rank=RIGHT))


def test_torchscript_module_with_a_communicator() -> None:
    class Mean(torch.nn.Module):
        def __init__(self, c: mpi4torch.MPI_Communicator):
            super().__init__()
            self.c = c

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.c.Allreduce(x, mpi4torch.MPI_SUM) / self.c.size

    assert_equal(torch.jit.script(Mean(comm))(torch.full((1,), 4.0)), torch.full((1,), 4.0))


def test_memory_does_not_grow() -> None:
    def passes(count: int) -> None:
        for _ in range(count):
            x = torch.ones(5000, requires_grad=True)
            y = scripted_ring(comm.Allreduce(x, mpi4torch.MPI_SUM), comm)
            comm.Bcast_(y + 0.0, 0).sum().backward()
            comm.Irecv(torch.empty(5000), LEFT, 99)  # never waited for

    passes(100)
    before = resident_bytes()
    passes(300)
    assert resident_bytes() - before < 300 * 5000  # a quarter of one leaked tensor per pass


# Extensions


def test_sendrecv_needs_no_dummies() -> None:
    x = leaf(1, 2)
    received = comm.Sendrecv(x, RIGHT, 5, torch.empty_like(x), LEFT, 5)
    (received * weights(2) + x).sum().backward()
    assert_equal(x.grad, weights(2, rank=RIGHT) + 1)


def test_reduce_scatter() -> None:
    total = SIZE * (SIZE + 1) // 2
    x = weights(total).requires_grad_()
    y = comm.Reduce_scatter(x, mpi4torch.MPI_SUM, -1, RANK + 1)
    start = RANK * (RANK + 1) // 2
    assert_equal(y.detach(), sum(weights(total, rank=r) for r in range(SIZE))[start : start + RANK + 1])
    (y * (RANK + 1)).sum().backward()
    owner = torch.repeat_interleave(torch.arange(1.0, SIZE + 1), torch.arange(1, SIZE + 1)).double()
    assert_equal(x.grad, owner)


def test_scan() -> None:
    x = leaf(1)
    y = comm.Scan(x, mpi4torch.MPI_SUM)
    assert y.item() == RANK + 1
    (y * (RANK + 1)).sum().backward()
    assert x.grad is not None and x.grad.item() == sum(range(RANK + 1, SIZE + 1))


def test_iallreduce() -> None:
    x = leaf(1, 2)
    handle = comm.Iallreduce(x, mpi4torch.MPI_SUM)
    (comm.Wait(handle) * weights(2)).sum().backward()
    assert_equal(x.grad, sum(weights(2, rank=r) for r in range(SIZE)))
    with pytest.raises(RuntimeError, match="Detected bifurcation"):
        comm.Wait(handle)


def test_split_and_dup() -> None:
    part = comm.Split(RANK % 2, -RANK)
    members = [r for r in range(SIZE) if r % 2 == RANK % 2]
    assert (part.size, part.rank) == (len(members), len(members) - 1 - members.index(RANK))
    assert part.Allreduce(torch.ones(1), mpi4torch.MPI_SUM).item() == part.size
    assert comm.Dup().Allreduce(torch.ones(1), mpi4torch.MPI_SUM).item() == SIZE


def test_rank_outside_of_a_split_raises() -> None:
    part = comm.Split(-1 if RANK == 0 else 0, 0)
    if RANK == 0:
        assert part.size == 0
        with pytest.raises(RuntimeError, match="not a member of the communicator"):
            part.Barrier()
    else:
        assert part.size == SIZE - 1


def test_communicators_can_be_copied_within_the_process() -> None:
    part = copy.deepcopy(comm.Split(0, 0))
    assert part.Allreduce(torch.ones(1), mpi4torch.MPI_SUM).item() == SIZE


def test_unpickling_in_another_process_raises() -> None:
    state = pickle.dumps(comm.Split(0, 0))
    process = str(os.getpid()).encode()
    assert process in state
    with pytest.raises(RuntimeError, match="pickled in another process"):
        pickle.loads(state.replace(process, b"0" * len(process)))
