"""Asynchronous operations of torch.distributed: Work, Future, coalescing, sequence numbers, and idle groups."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from process_group.default_group import lifetime, not_gloo, numbers, per_rank, same, several
from reference import reduced
from torch.distributed.distributed_c10d import _coalescing_manager

import weft

LARGE = (1 << 20) + 3


@pytest.fixture(scope="module", autouse=True)
def group(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from lifetime(request)


@pytest.mark.parametrize("length", [7, LARGE])
def test_operations_can_be_waited_for_out_of_order(length: int, rank: int, size: int) -> None:
    given = [per_rank(size, (length,), seed=i) for i in range(6)]
    xs = [ranks[rank].clone() for ranks in given]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    order = list(range(len(xs)))
    for i in order[::-1] if rank % 2 else order[1::2] + order[::2]:
        works[i].wait()
        same(xs[i], reduced(given[i], "sum"))


def test_different_operations_can_be_pending_at_once(rank: int, size: int) -> None:
    xs = per_rank(size, (size, 2))
    summed, sent = xs[rank].clone(), xs[rank].clone()
    gathered, piece, exchanged = torch.zeros(size * size, 2), torch.zeros(1, 2), torch.zeros(size, 2)
    works = [
        dist.all_reduce(summed, async_op=True),
        dist.broadcast(sent, size - 1, async_op=True),
        dist.all_gather_single(gathered, xs[rank], async_op=True),
        dist.barrier(async_op=True),
        dist.reduce_scatter_single(piece, xs[rank], async_op=True),
        dist.all_to_all_single(exchanged, xs[rank], async_op=True),
    ]
    for work in reversed(works):
        work.wait()
    same(summed, reduced(xs, "sum"))
    same(sent, xs[-1])
    same(gathered, torch.cat(xs))
    same(piece, reduced(xs, "sum")[rank : rank + 1])
    same(exchanged, torch.stack([x[rank] for x in xs]))


def test_blocking_calls_keep_program_order(rank: int, size: int) -> None:
    """Program order holds between asynchronous and blocking calls."""
    x = torch.ones(3)
    first = dist.all_reduce(x, async_op=True)
    y = torch.full((3,), 2.0)
    dist.all_reduce(y)
    first.wait()
    same(x, torch.full((3,), float(size)))
    same(y, torch.full((3,), 2.0 * size))


def test_discarded_work_still_completes(rank: int, size: int) -> None:
    """This rank keeps neither the Work nor the tensor; the peers still get their sums."""
    for _ in range(20):
        dist.all_reduce(torch.ones(1000), async_op=True)
    x = torch.ones(2)
    dist.all_reduce(x)
    same(x, torch.full((2,), float(size)))


def test_future_callbacks_can_be_chained(rank: int, size: int) -> None:
    x = torch.full((3,), float(rank))
    work = dist.all_reduce(x, async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    chained = doubled.then(lambda future: future.value() + 1)
    total = sum(range(size))
    same(chained.wait(), torch.full((3,), 2.0 * total + 1))
    same(doubled.value(), torch.full((3,), 2.0 * total))
    work.wait()
    assert work.get_future().done() and work.is_completed()


@not_gloo
def test_every_operation_has_a_future(rank: int, size: int) -> None:
    xs = per_rank(size, (size,))
    x = xs[rank].clone()
    listed, piece, gathered = [torch.zeros(size) for _ in range(size)], torch.zeros(1), torch.zeros(size * size)
    works = [
        dist.broadcast(x, 0, async_op=True),
        dist.all_gather(listed, xs[rank], async_op=True),
        dist.reduce_scatter_single(piece, xs[rank], async_op=True),
        dist.all_gather_single(gathered, xs[rank], async_op=True),
    ]
    torch.futures.wait_all([work.get_future() for work in works])
    same(x, xs[0])
    same(torch.cat(listed), torch.cat(xs))
    same(piece[0], reduced(xs, "sum")[rank])
    same(gathered, torch.cat(xs))


def test_callback_can_communicate(rank: int, size: int) -> None:
    """Like DDP's hooks: an operation started by a callback must not wait for the thread that runs the callback."""
    x = torch.ones(4)

    def again(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        second = future.value()[0].clone()
        dist.all_reduce(second, async_op=True).wait()
        return second

    future = dist.all_reduce(x, async_op=True).get_future().then(again)
    same(future.wait(), torch.full((4,), float(size * size)))


def test_completion_is_visible_without_waiting(rank: int, size: int) -> None:
    x = torch.ones(3)
    work = dist.all_reduce(x, async_op=True)
    deadline = time.monotonic() + 60
    while not work.is_completed() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert work.is_completed() and work.get_future().done()
    assert work.wait() and work.exception() is None
    same(x, torch.full((3,), float(size)))


@several
def test_timed_out_wait_does_not_cancel_the_operation(rank: int, size: int) -> None:
    """The wait times out; the operation continues."""
    x = torch.ones(3)
    comm = weft.world()  # notifies rank 0, without the group, that the others have timed out
    if rank == 0:
        comm.barrier()
    work = dist.all_reduce(x, async_op=True)
    if rank > 0:
        assert not work.is_completed()
        with pytest.raises(RuntimeError, match=r"(?i)timed out|timeout"):
            work.wait(timedelta(milliseconds=50))
        comm.barrier()
    assert work.wait(timedelta(seconds=60))
    same(x, torch.full((3,), float(size)))


def test_threads_can_use_separate_groups(rank: int, size: int) -> None:
    """One group per thread, because the caller must order the calls within a group."""
    groups = [dist.new_group() for _ in range(3)]
    totals = [torch.full((1000,), float(i)) for i in range(3)]

    def run(i: int) -> None:
        for _ in range(20):
            dist.all_reduce(totals[i], group=groups[i])
            totals[i] /= size

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, total in enumerate(totals):
        torch.testing.assert_close(total, torch.full((1000,), float(i)))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_coalesced_all_reduce_returns_every_sum(asynchronous: bool, rank: int, size: int) -> None:
    shapes = [(3,), (2, 2), (), (0,), (1000,)]
    given = [per_rank(size, shape, seed=i) for i, shape in enumerate(shapes)]
    xs = [ranks[rank].clone() for ranks in given]
    with _coalescing_manager(async_ops=asynchronous) as manager:
        for x in xs:
            dist.all_reduce(x)
    if asynchronous:
        manager.wait()
    for x, ranks in zip(xs, given):
        same(x, reduced(ranks, "sum"))


@pytest.mark.parametrize("op", ["mean", "max"])
def test_coalesced_reductions_support_mean_and_max(op: str, rank: int, size: int) -> None:
    given = [per_rank(size, (n,), torch.float64, seed=n) for n in (4, 9)]
    xs = [ranks[rank].clone() for ranks in given]
    with _coalescing_manager():
        for x in xs:
            dist.all_reduce(x, dist.ReduceOp.AVG if op == "mean" else dist.ReduceOp.MAX)
    for x, ranks in zip(xs, given):
        torch.testing.assert_close(x, reduced(ranks, op))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_coalesced_all_gather_returns_every_tensor(asynchronous: bool, rank: int, size: int) -> None:
    given = [per_rank(size, (n, 2), seed=n) for n in (3, 1, 500)]
    outputs = [torch.zeros(size * n, 2) for n in (3, 1, 500)]
    with _coalescing_manager(async_ops=asynchronous) as manager:
        for output, ranks in zip(outputs, given):
            dist.all_gather_single(output, ranks[rank])
    if asynchronous:
        manager.wait()
    for output, ranks in zip(outputs, given):
        same(output, torch.cat(ranks))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_coalesced_reduce_scatter(asynchronous: bool, rank: int, size: int) -> None:
    given = [per_rank(size, (size * n, 2), seed=n) for n in (3, 1, 500)]
    outputs = [torch.zeros(n, 2) for n in (3, 1, 500)]
    with _coalescing_manager(async_ops=asynchronous) as manager:
        for output, ranks in zip(outputs, given):
            dist.reduce_scatter_single(output, ranks[rank])
    if asynchronous:
        manager.wait()
    for output, ranks in zip(outputs, given):
        n = len(output)
        same(output, reduced(ranks, "sum")[rank * n : (rank + 1) * n])


@not_gloo
def test_messages_and_collectives_can_be_coalesced(rank: int, size: int) -> None:
    """With a device, each call goes to the backend, and the manager returns one Work for all calls."""
    cpu = torch.device("cpu")
    sent, received, total = numbers((5,), torch.float32, rank), torch.zeros(5), torch.ones(5)
    with _coalescing_manager(device=cpu, async_ops=True) as manager:
        dist.isend(sent, (rank + 1) % size)
        dist.irecv(received, (rank - 1) % size)
        dist.broadcast(total, 0)
    manager.wait()
    same(received, numbers((5,), torch.float32, (rank - 1) % size))
    same(total, torch.ones(5))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_deprecated_coalesced_calls_still_work(rank: int, size: int) -> None:
    xs = [torch.full((n,), float(rank)) for n in (2, 3)]
    dist.all_reduce_coalesced(xs)
    for x in xs:
        same(x, torch.full_like(x, float(sum(range(size)))))
    outputs = [[torch.zeros(2), torch.zeros(3)] for _ in range(size)]
    dist.all_gather_coalesced(outputs, [torch.full((2,), float(rank)), torch.full((3,), 1.0 + rank)])
    for i, (two, three) in enumerate(outputs):
        same(two, torch.full((2,), float(i)))
        same(three, torch.full((3,), 1.0 + i))


def sequence_number() -> int:
    """Asks the backend: torch's group forwards this call only to built-in backends."""
    world = dist.group.WORLD
    assert world is not None
    return world._get_backend(torch.device("cpu"))._get_sequence_number_for_group()


def test_collectives_advance_the_sequence_number(rank: int, size: int) -> None:
    before = sequence_number()
    dist.all_reduce(torch.ones(1))
    dist.broadcast(torch.ones(1), 0, async_op=True).wait()
    dist.barrier()
    assert sequence_number() == before + 3


@several
@not_gloo
def test_messages_do_not_change_sequence_numbers(rank: int, size: int) -> None:
    """Otherwise they would differ between ranks and could not show which rank is behind."""
    before = sequence_number()
    if rank == 0:
        dist.send(torch.ones(1), 1)
    elif rank == 1:
        dist.recv(torch.ones(1), 0)
    assert sequence_number() == before


def test_idle_group_uses_no_cpu_time(rank: int, size: int) -> None:
    dist.all_reduce(torch.ones(LARGE), async_op=True).wait()
    dist.all_reduce(torch.ones(1))
    time.sleep(1.0)
    begin = processor_seconds()
    time.sleep(1.5)
    assert processor_seconds() - begin < 0.01 * 1.5


def processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)  # includes all threads
    return usage.ru_utime + usage.ru_stime
