"""weft under torch's own backend name "mpi", and beside another backend. Runs on any number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from process_group.default_group import per_rank, same, several
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import weft


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    assert not dist.is_mpi_available()  # PyTorch's wheels have no MPI backend
    weft.use_as_mpi_backend()
    weft.use_as_mpi_backend()
    dist.init_process_group("mpi")
    yield
    dist.destroy_process_group()


def test_torch_reports_the_backend_as_mpi(rank: int, size: int) -> None:
    assert dist.is_mpi_available() and dist.is_backend_available("mpi")
    assert dist.get_backend() == dist.Backend.MPI == "mpi"
    assert (dist.get_rank(), dist.get_world_size()) == (rank, size)


def test_collectives_give_sums(rank: int, size: int) -> None:
    xs = per_rank(size, (5,))
    x = xs[rank].clone()
    dist.all_reduce(x)
    same(x, torch.stack(xs).sum(0))


@several
def test_groups_of_some_ranks(rank: int, size: int) -> None:
    groups = [dist.new_group([i for i in range(size) if i != left_out]) for left_out in range(size)]
    for left_out, group in enumerate(groups):
        if rank != left_out:
            x = torch.full((3,), 2.0**rank)
            dist.all_reduce(x, group=group)
            same(x, torch.full((3,), 2.0**size - 1 - 2.0**left_out))


def test_device_mesh_and_ddp(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (size, 1), mesh_dim_names=("data", "other"))
    assert (mesh.get_local_rank("data"), mesh.get_local_rank("other")) == (rank, 0)
    torch.manual_seed(0)
    linear = torch.nn.Linear(3, 1)
    xs = per_rank(size, (4, 3))
    model = DistributedDataParallel(linear, process_group=mesh.get_group("data"))
    model(xs[rank]).sum().backward()
    assert linear.weight.grad is not None
    torch.testing.assert_close(linear.weight.grad, torch.stack(xs).sum(1).mean(0, keepdim=True))


def test_a_second_default_group_works(size: int) -> None:
    dist.barrier()
    dist.destroy_process_group()
    dist.init_process_group("mpi")
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == size


def test_each_device_can_have_its_own_backend(rank: int, size: int) -> None:
    """As in "cpu:weft,cuda:nccl"; torch's CPU wheels have no NCCL."""
    dist.barrier()
    dist.destroy_process_group()
    dist.init_process_group("cpu:weft,cuda:gloo")
    assert dist.group.WORLD is not None
    assert dist.group.WORLD._get_backend(torch.device("cpu")).name() == "weft"
    assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == size
    dist.barrier()
