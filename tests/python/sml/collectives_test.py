"""Compares sums through a switch with sums in double precision, for every supported type, and tests the fallback."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import inference_cases
import pytest
import torch
import torch.distributed as dist
from sml import default_group
from sml.switches import Switch
from torch import Tensor

import weft

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
SHAPES = ((), (1,), (7,), (256,), (257,), (33, 65), (100_003,))


@pytest.fixture(scope="module", autouse=True)
def switch(request: pytest.FixtureRequest) -> Iterator[Switch | None]:
    yield from default_group.lifetime(request)


def per_rank(size: int, shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
    """Inputs of each rank: magnitudes from 1e-3 to 1e3, with both signs."""
    generator = torch.Generator().manual_seed(seed)
    if not dtype.is_floating_point:
        return [torch.randint(-(2**28), 2**28, shape, generator=generator, dtype=dtype) for _ in range(size)]
    exponents = [torch.rand(shape, generator=generator) * 6 - 3 for _ in range(size)]
    return [(torch.randn(shape, generator=generator) * 10**exponent).to(dtype) for exponent in exponents]


def bound(xs: list[Tensor], dtype: torch.dtype) -> Tensor:
    """Error bound of docs/aggregation-protocol.md: n/2 quanta of the largest number, and one rounding."""
    n = len(xs)
    largest = max(float(x.abs().max()) for x in xs)
    quantum = 2.0 ** (math.floor(math.log2(largest)) + 1 + math.ceil(math.log2(n)) - 30)
    total = sum(x.double() for x in xs)
    return n / 2 * quantum + torch.as_tensor(total).abs() * torch.finfo(dtype).eps


def same_on_all_ranks(x: Tensor) -> None:
    bits = x.contiguous().view(-1).view(torch.uint8).long()
    comm = weft.world()
    assert torch.equal(comm.all_reduce(bits, "max"), comm.all_reduce(bits, "min"))


def went(name: str) -> int:
    return weft.sml.statistics().get(name, 0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_int32_is_exact(shape: tuple[int, ...], rank: int, size: int) -> None:
    xs = per_rank(size, shape, torch.int32)
    x = xs[rank].clone()
    dist.all_reduce(x)
    assert torch.equal(x, sum(xs[1:], xs[0]))


def test_int32_wraps(rank: int, size: int) -> None:
    x = torch.full((300,), 2**31 - 1, dtype=torch.int32)
    dist.all_reduce(x)
    assert torch.equal(x, torch.full((300,), size * (2**31 - 1), dtype=torch.int64).to(torch.int32))


@pytest.mark.parametrize("op", [dist.ReduceOp.SUM, dist.ReduceOp.AVG], ids=["sum", "avg"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_float_sums_are_within_the_error_bound(
    shape: tuple[int, ...], dtype: torch.dtype, op: dist.ReduceOp, rank: int, size: int
) -> None:
    xs = per_rank(size, shape, dtype)
    x = xs[rank].clone()
    before = went("switch.all_reduce")
    dist.all_reduce(x, op=op)
    assert went("switch.all_reduce") - before == (1 if size > 1 else 0)
    expected, allowed = torch.as_tensor(sum(y.double() for y in xs)), bound(xs, dtype)
    if op == dist.ReduceOp.AVG:
        expected, allowed = expected / size, allowed / size + (expected / size).abs() * torch.finfo(dtype).eps
    assert x.dtype == dtype and x.shape == torch.Size(shape)
    assert ((x.double() - expected).abs() <= allowed).all()
    same_on_all_ranks(x)


@pytest.mark.parametrize("op", [dist.ReduceOp.SUM, dist.ReduceOp.AVG], ids=["sum", "avg"])
def test_flush_to_zero_on_one_rank_does_not_change_the_bits(op: dist.ReduceOp, rank: int, size: int) -> None:
    """The group's thread inherits the floating-point environment of the thread that creates it."""
    if size == 1:
        pytest.skip("needs the switch")
    xs = [torch.full((300,), 1e-40 * (other + 1)) for other in range(size)]
    x = xs[rank].clone()
    if rank == 0 and not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    group = dist.new_group()
    work = dist.all_reduce(x, op=op, group=group, async_op=True)
    work.wait()
    torch.set_flush_denormal(False)
    dist.destroy_process_group(group)
    expected = torch.as_tensor(sum(y.double() for y in xs)) / (size if op == dist.ReduceOp.AVG else 1)
    assert (x.double() - expected).abs().max() <= size * 2.0**-149
    same_on_all_ranks(x)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_and_inf_arrive(dtype: torch.dtype, rank: int, size: int) -> None:
    x = torch.ones(3000, dtype=dtype)
    if rank == size - 1:
        x[5], x[1000], x[2500] = math.nan, math.inf, -math.inf
    dist.all_reduce(x)
    assert x[5].isnan() and x[1000] == math.inf and x[2500] == -math.inf
    assert torch.isfinite(x[1600:2000]).all() and (x[1600:2000] == size).all()  # other blocks are untouched
    same_on_all_ranks(x)


def test_inf_of_both_signs_is_nan(rank: int, size: int) -> None:
    x = torch.tensor([math.inf if rank == 0 else -math.inf])
    dist.all_reduce(x)
    assert x.isnan().item() or size == 1


@pytest.mark.parametrize("value", [2e38, 1e38, 1e-30, 1e-45, -3e38])
def test_large_and_tiny_numbers_neither_overflow_nor_vanish(value: float, rank: int, size: int) -> None:
    x = torch.zeros(10)
    if rank == 0:
        x[3] = value
    dist.all_reduce(x)
    assert x[3].item() == torch.tensor(value).item()


def test_small_numbers_next_to_large_ones_do_not_vanish(rank: int, size: int) -> None:
    x = torch.zeros(100)
    x[:2] = torch.tensor([1.0, 1e-10])
    dist.all_reduce(x)
    assert x[0] == size and x[1].item() == pytest.approx(size * 1e-10, rel=2**-8) and (x[2:] == 0).all()


def test_non_contiguous_views_are_reduced_in_place(rank: int, size: int) -> None:
    whole = torch.arange(60.0).view(6, 10) + rank
    before = whole.clone()
    part = whole[:, ::3]
    dist.all_reduce(part)
    assert torch.equal(part, size * torch.arange(60.0).view(6, 10)[:, ::3] + sum(range(size)))
    assert torch.equal(whole[:, 1::3], before[:, 1::3])


@pytest.mark.parametrize("case", inference_cases.CASES, ids=lambda case: case.__name__)
def test_collectives_work_in_inference_mode(case: Callable[[int, int], None], rank: int, size: int) -> None:
    inference_cases.check(case, rank, size)


@pytest.mark.parametrize(
    ("dtype", "value"), [(torch.float16, 40000.0), (torch.bfloat16, 3e38), (torch.float32, 3e38)], ids=str
)
def test_a_representable_mean_does_not_overflow(dtype: torch.dtype, value: float, rank: int, size: int) -> None:
    expected = torch.full((300,), value, dtype=dtype)
    x = expected.clone()
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    assert torch.equal(x, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_mean_is_rounded_once(dtype: torch.dtype, rank: int, size: int) -> None:
    xs = [torch.randint(0, 256, (1000,), generator=torch.Generator().manual_seed(i)).to(dtype) for i in range(size)]
    x = xs[rank].clone()
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    total = torch.stack([y.float() for y in xs]).sum(0)  # exact
    assert torch.equal(x, (total / size).to(dtype))


def test_concurrent_sums_run_in_order(rank: int, size: int) -> None:
    xs = [torch.full((1000 + i,), float(rank + i)) for i in range(20)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    for work in reversed(works):
        work.wait()
        assert work.is_completed() and work.is_success()
    for i, x in enumerate(xs):
        assert (x == sum(range(size)) + size * i).all()


def test_future_holds_the_sum(rank: int, size: int) -> None:
    work = dist.all_reduce(torch.full((5,), float(rank)), async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    assert torch.equal(doubled.wait(), torch.full((5,), 2.0 * sum(range(size))))


def test_coalesced_tensors_are_all_summed(rank: int, size: int) -> None:
    xs = [torch.full((i + 1,), float(rank), dtype=torch.float32) for i in range(3)]
    dist.all_reduce_coalesced(xs)
    assert all((x == sum(range(size))).all() for x in xs)


@pytest.mark.parametrize(
    ("name", "tensor", "op"),
    [
        ("Double", torch.ones(3, dtype=torch.float64), dist.ReduceOp.SUM),
        ("Long", torch.ones(3, dtype=torch.int64), dist.ReduceOp.SUM),
        ("reduction", torch.ones(3), dist.ReduceOp.MAX),
        ("empty", torch.ones(0), dist.ReduceOp.SUM),
    ],
)
def test_unsupported_operations_use_the_fallback(
    name: str, tensor: Tensor, op: dist.ReduceOp, rank: int, size: int
) -> None:
    reason = f"fallback.all_reduce.{name if size > 1 else 'one_rank'}"
    before = went(reason)
    x = tensor.clone()
    dist.all_reduce(x, op=op)
    assert torch.equal(x, tensor * (size if op == dist.ReduceOp.SUM else 1))
    assert went(reason) == before + 1


def test_other_collectives_return_the_right_values(rank: int, size: int) -> None:
    x = torch.full((3,), float(rank), dtype=torch.float64)
    dist.broadcast(x, src=size - 1)
    assert (x == size - 1).all()
    gathered = [torch.empty(2) for _ in range(size)]
    dist.all_gather(gathered, torch.full((2,), float(rank)))
    assert [int(y[0]) for y in gathered] == list(range(size))
    objects: list[object] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": i} for i in range(size)]
    output = torch.empty(2)
    dist.reduce_scatter_tensor(output, torch.arange(2.0 * size))
    assert torch.equal(output, size * torch.tensor([2.0 * rank, 2.0 * rank + 1]))
    if size > 1:
        if rank == 0:
            dist.send(torch.tensor([7.0]), dst=1)
        elif rank == 1:
            received = torch.zeros(1)
            dist.recv(received, src=0)
            assert received.item() == 7
    dist.barrier()


def test_subgroups_have_their_own_sessions(rank: int, size: int, switch: Switch | None) -> None:
    if size < 3:
        pytest.skip("needs at least three ranks")
    members = list(range(1, size))
    group = dist.new_group(members)
    all_ones = torch.ones(500)
    work = dist.all_reduce(all_ones, async_op=True)
    if rank in members:
        some = torch.full((700,), float(rank))
        dist.all_reduce(some, group=group)
        assert (some == sum(members)).all()
        assert weft.sml.statistics(group)["switch.all_reduce"] == 1
    work.wait()
    assert (all_ones == size).all()
    if switch:
        assert switch.metric("job_workers") == size + len(members)
    dist.barrier()
    if rank in members:
        dist.destroy_process_group(group)


def test_metrics_count_sums_and_workers(switch: Switch | None, size: int) -> None:
    if switch and size > 1:
        assert switch.metric("sums_total") > 0
        assert switch.metric("job_workers_placed") >= size
        assert "weft-switch" in switch.page("/")


def test_statistics_of_another_backend_raise(size: int) -> None:
    other = dist.new_group(backend="gloo") if size > 1 else None
    if other is not None:
        with pytest.raises(RuntimeError, match="with backend 'sml'"):
            weft.sml.statistics(other)
