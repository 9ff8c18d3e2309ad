"""Point-to-point messages of a torch.distributed group, and collectives of Python objects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from process_group.default_group import DTYPES, each, lifetime, not_gloo, numbers, per_rank, same, several

LARGE = (1 << 20) + 3


def leave_together() -> None:
    """Barrier: a receive from any source must not match a message of the next test."""
    dist.barrier()


@pytest.fixture(scope="module", autouse=True)
def group(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from lifetime(request)


@several
@pytest.mark.parametrize("dtype", each(DTYPES))
def test_send_and_receive(dtype: torch.dtype, rank: int, size: int) -> None:
    """A ring of blocking calls; the last rank receives first to avoid a deadlock."""
    xs = per_rank(size, (3, 5), dtype)
    received = torch.zeros(3, 5, dtype=dtype)
    if rank == size - 1:
        assert dist.recv(received, rank - 1) == rank - 1
        dist.send(xs[rank], 0)
    else:
        dist.send(xs[rank], rank + 1)
        assert dist.recv(received, (rank - 1) % size) == (rank - 1) % size
    same(received, xs[rank - 1])


@several
@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (LARGE,)])
def test_messages_of_any_size_arrive(shape: tuple[int, ...], rank: int, size: int) -> None:
    xs = per_rank(size, shape)
    received = torch.full(shape, -9.0)
    sending = dist.isend(xs[rank], (rank + 1) % size)
    receiving = dist.irecv(received, (rank - 1) % size)
    receiving.wait()
    sending.wait()
    same(received, xs[rank - 1])


@several
def test_tags_select_messages(rank: int, size: int) -> None:
    tags = [3, 0, 1 << 16, 7]
    sending = [dist.isend(torch.tensor([rank, tag]), (rank + 1) % size, tag=tag) for tag in tags]
    for tag in reversed(tags):
        received = torch.zeros(2, dtype=torch.int64)
        dist.recv(received, (rank - 1) % size, tag=tag)
        assert received.tolist() == [(rank - 1) % size, tag]
    for work in sending:
        work.wait()


@several
def test_messages_of_one_tag_keep_their_order(rank: int, size: int) -> None:
    count = 50
    received = torch.zeros(count)
    works = [dist.irecv(received[i : i + 1], (rank - 1) % size) for i in range(count)]
    works += [dist.isend(torch.tensor([float(i)]), (rank + 1) % size) for i in range(count)]
    for work in reversed(works):
        work.wait()
    same(received, torch.arange(float(count)))


@several
@pytest.mark.parametrize("length", [3, LARGE])
def test_receive_from_any_source(length: int, rank: int, size: int) -> None:
    senders = set()
    if rank > 0:
        dist.send(torch.full((length,), float(rank)), 0, tag=5)
    else:
        for _ in range(size - 1):
            received = torch.zeros(length)
            sender = dist.recv(received, tag=5)
            same(received, torch.full((length,), float(sender)))
            senders.add(sender)
    leave_together()
    assert senders == (set() if rank else set(range(1, size)))


@several
def test_asynchronous_receive_from_any_source(rank: int, size: int) -> None:
    if rank < size - 1:
        dist.isend(torch.full((2,), 1.0 + rank), size - 1).wait()
    else:
        received = torch.zeros(size - 1, 2)
        works = [dist.irecv(row) for row in received]
        for work, row in zip(works, received):
            work.wait()
            same(row, torch.full((2,), 1.0 + work._source_rank()))
    leave_together()


@not_gloo
def test_rank_can_send_to_itself(rank: int) -> None:
    x, received = numbers((4,), torch.float32, rank), torch.zeros(4)
    works = [dist.irecv(received, rank, tag=2), dist.isend(x, rank, tag=2)]
    for work in works:
        work.wait()
    same(received, x)


@several
@not_gloo
def test_views_can_be_sent_and_received(rank: int, size: int) -> None:
    x = numbers((3, 4), torch.float32, rank)
    received = torch.full((4, 6), -9.0)
    works = [dist.isend(x.t(), (rank + 1) % size), dist.irecv(received[:, 1::2], (rank - 1) % size)]
    for work in works:
        work.wait()
    same(received[:, 1::2], numbers((3, 4), torch.float32, (rank - 1) % size).t())
    assert (received[:, ::2] == -9).all()


@several
@pytest.mark.parametrize("length", [5, LARGE])
def test_batched_operations_may_be_in_any_order(length: int, rank: int, size: int) -> None:
    """Receives follow sends on one rank and precede them on its neighbour."""
    following, previous = (rank + 1) % size, (rank - 1) % size
    pairs = 2
    received = torch.zeros(pairs, length)
    operations = [dist.P2POp(dist.isend, torch.full((length,), 10.0 * rank + i), following) for i in range(pairs)]
    operations += [dist.P2POp(dist.irecv, received[i], previous) for i in range(pairs)]
    if rank % 2:
        operations = operations[pairs:] + operations[:pairs]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    same(received, torch.stack([torch.full((length,), 10.0 * previous + i) for i in range(pairs)]))


@several
def test_batch_between_all_pairs(rank: int, size: int) -> None:
    others = [i for i in range(size) if i != rank]
    received = {i: torch.zeros(3) for i in others}
    operations = [dist.P2POp(dist.isend, torch.full((3,), 10.0 * rank + i), i) for i in others]
    operations += [dist.P2POp(dist.irecv, received[i], i) for i in reversed(others)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for i in others:
        same(received[i], torch.full((3,), 10.0 * i + rank))


@several
def test_pending_receive_does_not_block_collectives(rank: int, size: int) -> None:
    """A pending receive does not block collectives."""
    received, total = torch.zeros(2), torch.ones(2)
    receiving = dist.irecv(received, (rank - 1) % size)
    dist.all_reduce(total)
    sending = dist.isend(torch.full((2,), float(rank)), (rank + 1) % size)
    receiving.wait()
    sending.wait()
    same(total, torch.full((2,), float(size)))
    same(received, torch.full((2,), float((rank - 1) % size)))


def thing(rank: int) -> dict[str, object]:
    """Returns an object whose size differs between ranks."""
    return {"rank": rank, "text": "x" * (rank * 1000), "tensor": torch.arange(rank)}


def check_thing(actual: object, rank: int) -> None:
    assert isinstance(actual, dict)
    assert actual["rank"] == rank and len(actual["text"]) == rank * 1000
    same(actual["tensor"], torch.arange(rank))


def test_all_gather_object(rank: int, size: int) -> None:
    outputs: list[object] = [None] * size
    dist.all_gather_object(outputs, thing(rank))
    for i, output in enumerate(outputs):
        check_thing(output, i)


def test_gather_object(rank: int, size: int) -> None:
    root = size - 1
    outputs: list[object] | None = [None] * size if rank == root else None
    dist.gather_object(thing(rank), outputs, root)
    for i, output in enumerate(outputs or []):
        check_thing(output, i)


def test_broadcast_object_list(rank: int, size: int) -> None:
    root = size - 1
    objects: list[object] = [thing(3), "two", None] if rank == root else [None] * 3
    dist.broadcast_object_list(objects, root)
    check_thing(objects[0], 3)
    assert objects[1:] == ["two", None]


def test_scatter_object_list(rank: int, size: int) -> None:
    root = size - 1
    output: list[object] = [None]
    dist.scatter_object_list(output, [thing(i) for i in range(size)] if rank == root else None, root)
    check_thing(output[0], rank)


@several
def test_objects_as_messages(rank: int, size: int) -> None:
    if rank == 0:
        dist.send_object_list([thing(2), 5], 1)
    elif rank == 1:
        objects: list[object] = [None, None]
        assert dist.recv_object_list(objects, 0) == 0
        check_thing(objects[0], 2)
        assert objects[1] == 5
