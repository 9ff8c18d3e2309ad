"""Collectives on tensors created in torch.inference_mode(), for all backends."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist


def all_reduce_sum(rank: int, size: int) -> None:
    x = torch.full((3000,), float(rank))
    dist.all_reduce(x)
    assert x.is_inference() and (x == sum(range(size))).all()


def all_reduce_mean(rank: int, size: int) -> None:
    for dtype in (torch.float32, torch.float16):
        x = torch.full((5,), 2.0 * rank, dtype=dtype)
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        assert (x == size - 1).all()


def all_reduce_apart(rank: int, size: int) -> None:
    whole = torch.full((6, 10), float(rank))
    dist.all_reduce(whole[:, ::3])
    assert (whole[:, ::3] == sum(range(size))).all() and (whole[:, 1::3] == rank).all()


def all_reduce_weighted(rank: int, size: int) -> None:
    if dist.get_backend() != "weft":
        return
    x = torch.full((5,), float(rank))
    dist.all_reduce(x, op=dist._make_nccl_premul_sum(2.0))
    assert (x == 2 * sum(range(size))).all()


def all_gather(rank: int, size: int) -> None:
    gathered = [torch.empty(4, 6).t() for _ in range(size)]
    dist.all_gather(gathered, torch.full((6, 4), float(rank)))
    assert all((y == i).all() for i, y in enumerate(gathered))


def broadcast(rank: int, size: int) -> None:
    x = torch.full((6, 10), float(rank))
    dist.broadcast(x[:, ::3], src=size - 1)
    assert (x[:, ::3] == size - 1).all()


def reduce_scatter(rank: int, size: int) -> None:
    for op, factor in ((dist.ReduceOp.SUM, size), (dist.ReduceOp.AVG, 1)):
        whole = torch.zeros(2, 3)
        dist.reduce_scatter(whole[:, 1], [torch.full((2,), float(i)) for i in range(size)], op=op)
        assert torch.equal(whole, factor * rank * torch.tensor([[0.0, 1, 0], [0, 1, 0]]))


def without_waiting(rank: int, size: int) -> None:
    """A thread other than the caller's writes the result."""
    wholes = [torch.full((2000, 2), float(rank)) for _ in range(10)]
    works = [dist.all_reduce(whole[:, 0], op=dist.ReduceOp.AVG, async_op=True) for whole in wholes]
    for work in works:
        while not work.is_completed():
            pass
        work.wait()
    assert all((whole[:, 0] == sum(range(size)) / size).all() for whole in wholes)


def tensors_of_before(rank: int, size: int) -> None:
    """Tensors created in normal mode stay normal tensors."""
    with torch.inference_mode(False):
        whole = torch.full((6, 2), float(rank))
    dist.all_reduce(whole[:, 0], op=dist.ReduceOp.AVG)
    assert not whole.is_inference() and (whole[:, 0] == sum(range(size)) / size).all()


def tensors_of_then(rank: int, size: int) -> None:
    """Inference tensors are used after the mode has ended."""
    x = torch.full((6, 2), float(rank))
    with torch.inference_mode(False):
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        dist.all_reduce(x[:, 0], op=dist.ReduceOp.AVG)
    assert (x == sum(range(size)) / size).all()


CASES = (
    all_reduce_sum,
    all_reduce_mean,
    all_reduce_apart,
    all_reduce_weighted,
    all_gather,
    broadcast,
    reduce_scatter,
    without_waiting,
    tensors_of_before,
    tensors_of_then,
)


def check(case: Callable[[int, int], None], rank: int, size: int) -> None:
    with torch.inference_mode():
        case(rank, size)
    x = torch.ones(3)
    dist.all_reduce(x)  # the group remains usable
    assert (x == size).all()
