"""Communication without agreements (WEFT_CHECK=0): results and gradients stay the same."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

import weft


@pytest.fixture(autouse=True)
def unchecked(comm: weft.Communicator) -> Iterator[None]:
    before = weft.configure(check=False)
    comm.barrier()
    yield
    comm.barrier()
    weft.configure(before)
    weft.reset_tape()


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32, torch.complex64])
def test_every_type_can_be_communicated(dtype: torch.dtype, comm: weft.Communicator) -> None:
    """Regression: integers and bool raised 'Autograd not support dtype'."""
    x = torch.ones(comm.size, dtype=dtype)
    for y in (
        comm.all_reduce(x, "prod"),
        comm.broadcast(x),
        comm.scan(x, "prod"),
        comm.all_to_all(x),
        comm.iall_reduce(x, "sum" if dtype != torch.bool else "lor").wait() != 0,
        comm.ibroadcast(x).wait(),
    ):
        assert torch.equal(y, x.to(y.dtype))
    assert torch.equal(comm.all_gather(x), x.repeat(comm.size))
    assert torch.equal(comm.iall_gather(x).wait(), x.repeat(comm.size))
    assert comm.gather(x).numel() == (comm.size**2 if comm.rank == 0 else 0)
    assert torch.equal(comm.scatter(x if comm.rank == 0 else None), x[:1])
    assert torch.equal(comm.reduce_scatter(x, "prod"), x[:1])


def test_gradients_work(comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=comm.rank == 0)
    y = comm.all_reduce(x) + comm.scatter(x.repeat(comm.size) if comm.rank == 0 else torch.empty(0, dtype=torch.int64))
    weft.backward(y.sum())
    if comm.rank == 0:
        assert x.grad.tolist() == [2.0 * comm.size] * 2


def test_reduction_without_a_gradient_does_not_disturb_backward(comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    any_rank = comm.all_reduce(torch.ones(2), "lor")
    weft.backward((comm.all_reduce(x) * any_rank).sum())
    assert x.grad.tolist() == [float(comm.size)] * 2


def test_process_group_works(comm: weft.Communicator) -> None:
    dist.init_process_group("weft")
    try:
        x = torch.ones(3, dtype=torch.int64)
        dist.all_reduce(x)
        assert x.tolist() == [comm.size] * 3
    finally:
        dist.destroy_process_group()
