"""Groups of some ranks: created and used in any order, overlapping, and split."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from process_group.default_group import BACKEND, lifetime, per_rank, same, several
from reference import reduced
from torch.distributed.device_mesh import init_device_mesh


@pytest.fixture(scope="module", autouse=True)
def group(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from lifetime(request)


@pytest.fixture(autouse=True)
def afresh(request: pytest.FixtureRequest) -> Iterator[None]:
    """torch names groups by their number on a rank; ranks with different numbers of groups disagree on names."""
    yield
    if not request.session.testsfailed:
        dist.barrier()
        for made in [made for made in dist.distributed_c10d._world.pg_map if made is not dist.group.WORLD]:
            dist.destroy_process_group(made)


def total_over(members: list[int], group: dist.ProcessGroup, rank: int) -> None:
    x = torch.full((3,), 2.0**rank)
    dist.all_reduce(x, group=group)
    same(x, torch.full((3,), float(sum(2.0**i for i in members))))


def windows(size: int) -> list[list[int]]:
    """Returns overlapping groups: each rank is in several."""
    return [[i % size for i in range(first, first + width)] for width in range(1, size) for first in range(size)]


@pytest.mark.parametrize("backward", [False, True])
def test_groups_can_be_used_in_another_order_than_created(backward: bool, rank: int, size: int) -> None:
    members = [sorted(window) for window in windows(size)]
    groups = [dist.new_group(ranks) for ranks in members]
    pairs = list(zip(members, groups))
    for ranks, made in reversed(pairs) if backward else pairs:
        if rank in ranks:
            assert dist.get_rank(made) == ranks.index(rank) and dist.get_world_size(made) == len(ranks)
            total_over(ranks, made, rank)
        else:
            assert made == dist.GroupMember.NON_GROUP_MEMBER


@several
@pytest.mark.parametrize("length", [3, (1 << 20) + 3])
def test_ranks_may_use_two_groups_in_opposite_orders(length: int, rank: int, size: int) -> None:
    """Asynchronous calls on different groups are not ordered, so ranks may issue them in different orders."""
    first, second = dist.new_group(), dist.new_group()
    given = [per_rank(size, (length,), seed=i) for i in range(2)]
    for _ in range(5):
        xs = [ranks[rank].clone() for ranks in given]
        order = [(0, first), (1, second)]
        works = [dist.all_reduce(xs[i], group=g, async_op=True) for i, g in (order if rank % 2 else order[::-1])]
        for work in works:
            work.wait()
        for x, ranks in zip(xs, given):
            same(x, reduced(ranks, "sum"))


@several
def test_overlapping_pairs_in_opposite_orders_do_not_deadlock(rank: int, size: int) -> None:
    """Each rank is in two groups and starts with the left one; a blocked group would block all ranks."""
    members = [sorted({i, (i + 1) % size}) for i in range(size)]
    groups = [dist.new_group(ranks) for ranks in members]
    mine = [(rank - 1) % size, rank]
    xs = {i: torch.full((5,), 2.0**rank) for i in mine}
    works = [dist.all_reduce(xs[i], group=groups[i], async_op=True) for i in mine]
    for work in works:
        work.wait()
    for i in mine:
        same(xs[i], torch.full((5,), float(sum(2.0**j for j in members[i]))))


@several
def test_roots_and_peers_are_given_by_world_rank(rank: int, size: int) -> None:
    members = list(range(1, size))
    made = dist.new_group(members)
    if rank == 0:
        return
    last = size - 1
    x = torch.tensor([float(rank)])
    dist.broadcast(x, last, group=made)
    same(x, torch.tensor([float(last)]))
    x = torch.tensor([float(rank)])
    dist.broadcast(x, group_src=0, group=made)
    same(x, torch.tensor([1.0]))
    x = torch.tensor([float(rank)])
    dist.reduce(x, last, group=made)
    if rank == last:
        same(x, torch.tensor([float(sum(members))]))
    if len(members) > 1 and rank == 1:
        dist.send(torch.tensor([7.0]), last, group=made)
    elif len(members) > 1 and rank == last:
        assert dist.recv(x, group=made) == 1  # from any source, by world rank
        same(x, torch.tensor([7.0]))


@several
def test_messages_of_different_groups_do_not_mix(rank: int, size: int) -> None:
    """Two groups with the same peers and tag."""
    first, second = dist.new_group(), dist.new_group()
    sending = [
        dist.isend(torch.tensor([value]), (rank + 1) % size, group=group)
        for value, group in ((1.0, first), (2.0, second))
    ]
    received = torch.zeros(2, 1)
    dist.recv(received[1], (rank - 1) % size, group=second)
    dist.recv(received[0], (rank - 1) % size, group=first)
    for work in sending:
        work.wait()
    assert received.flatten().tolist() == [1.0, 2.0]


@several
def test_members_alone_can_create_a_group(rank: int, size: int) -> None:
    halves = [[i for i in range(size) if i % 2 == parity] for parity in range(2)]
    mine = halves[rank % 2]
    made = [dist.new_group(mine, use_local_synchronization=True) for _ in range(1 + rank % 2)]  # odd ranks create more
    for group in made:
        total_over(mine, group, rank)
    total_over(list(range(size)), dist.group.WORLD, rank)


def test_many_groups_can_be_created_in_sequence(rank: int, size: int) -> None:
    for _ in range(100):
        made = dist.new_group()
        total_over(list(range(size)), made, rank)
        dist.destroy_process_group(made)
    total_over(list(range(size)), dist.group.WORLD, rank)


def test_split_returns_a_group_of_the_given_ranks(rank: int, size: int) -> None:
    """Uses the method of the group, because torch.distributed.split_group needs an accelerator."""
    world = dist.group.WORLD
    assert world is not None and world._get_backend(torch.device("cpu")).supports_splitting
    mine = [i for i in range(size) if i % 2 == rank % 2]
    part = world.split_group(mine, timeout=timedelta(seconds=60), group_name=f"parity{rank % 2}")
    assert part is not None and part.size() == len(mine) and part.rank() == mine.index(rank)
    x = torch.full((3,), 2.0**rank)
    part.allreduce([x]).wait()
    same(x, torch.full((3,), float(sum(2.0**i for i in mine))))


def test_new_subgroups_contain_consecutive_ranks(rank: int, size: int) -> None:
    width = 2 if size % 2 == 0 else 1
    mine, _ = dist.new_subgroups(width)
    first = rank // width * width
    total_over(list(range(first, first + width)), mine, rank)


def test_device_mesh_has_row_and_column_groups(rank: int, size: int) -> None:
    shape = (2, size // 2) if size % 2 == 0 else (1, size)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("rows", "columns"))
    grid = torch.arange(size).reshape(shape)
    row, column = divmod(rank, shape[1])
    total_over(grid[:, column].tolist(), mesh["rows"].get_group(), rank)
    total_over(grid[row].tolist(), mesh["columns"].get_group(), rank)


def test_backend_can_be_given_by_device(rank: int, size: int) -> None:
    made = dist.new_group(backend=f"cpu:{BACKEND}")
    total_over(list(range(size)), made, rank)


def test_gloo_works_in_the_same_process(rank: int, size: int) -> None:
    made = dist.new_group(backend="gloo")
    x, y = torch.full((3,), float(rank)), torch.full((3,), float(rank))
    works = [dist.all_reduce(x, group=made, async_op=True), dist.all_reduce(y, async_op=True)]
    for work in works:
        work.wait()
    same(x, y)
    same(x, torch.full((3,), float(sum(range(size)))))
