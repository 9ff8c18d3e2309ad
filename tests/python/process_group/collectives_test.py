"""Every collective of torch.distributed on the backend, against plain torch."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from process_group.default_group import (
    BACKEND,
    COMPLEX,
    DTYPES,
    FLOATING,
    INTEGERS,
    each,
    lifetime,
    not_gloo,
    numbers,
    per_rank,
    same,
    several,
)
from reference import reduced
from torch import Tensor

OPS = {
    "sum": dist.ReduceOp.SUM,
    "mean": dist.ReduceOp.AVG,
    "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR,
    "bxor": dist.ReduceOp.BXOR,
}
BITWISE = {"band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor}
FORMS = [pytest.param(False, id="cat"), pytest.param(True, id="stack", marks=not_gloo)]
LARGE = (1 << 20) + 3  # elements; odd, so that no rank count divides it

Layout = Callable[[Tensor], Tensor]


@pytest.fixture(scope="module", autouse=True)
def group(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from lifetime(request)


def defined(op: str, dtype: torch.dtype) -> bool:
    if op in ("sum", "prod"):
        return True
    if op == "mean":
        return dtype in FLOATING or dtype in COMPLEX
    return dtype not in COMPLEX and (op in ("min", "max") or dtype not in FLOATING)


def reductions(dtypes: tuple[torch.dtype, ...]) -> list[object]:
    """Returns each reduction with each dtype that supports it."""
    return [
        pytest.param(op, dtype, id=f"{op}-{str(dtype)[6:]}", marks=[not_gloo] if dtype == torch.int16 else [])
        for op in OPS
        for dtype in dtypes
        if defined(op, dtype)
    ]


def combined(xs: list[Tensor], op: str) -> Tensor:
    return functools.reduce(BITWISE[op], xs) if op in BITWISE else reduced(xs, op)


def check_reduced(actual: Tensor, xs: list[Tensor], op: str) -> None:
    """Compares bit by bit; only a mean rounds, if the number of ranks is not a power of two."""
    if op == "mean" and len(xs) == 3:
        torch.testing.assert_close(actual, combined(xs, op), equal_nan=True)
    else:
        same(actual, combined(xs, op))


@pytest.mark.parametrize(("op", "dtype"), reductions((*FLOATING, *INTEGERS, torch.bool)))
def test_all_reduce(op: str, dtype: torch.dtype, rank: int, size: int) -> None:
    xs = per_rank(size, (3, 5), dtype)
    x = xs[rank].clone()
    assert dist.all_reduce(x, OPS[op]) is None
    check_reduced(x, xs, op)


@pytest.mark.parametrize("dtype", each(COMPLEX))
@pytest.mark.parametrize("op", ["sum", "mean"])
def test_all_reduce_of_complex(op: str, dtype: torch.dtype, rank: int, size: int) -> None:
    xs = per_rank(size, (3, 5), dtype)
    x = xs[rank].clone()
    dist.all_reduce(x, OPS[op])
    check_reduced(x, xs, op)


@pytest.mark.parametrize("root", ["first", "last"])
@pytest.mark.parametrize(("op", "dtype"), reductions((torch.bfloat16, torch.float32, torch.int64)))
def test_reduce(op: str, dtype: torch.dtype, root: str, rank: int, size: int) -> None:
    xs = per_rank(size, (3, 5), dtype)
    x = xs[rank].clone()
    to = 0 if root == "first" else size - 1
    dist.reduce(x, to, OPS[op])
    if rank == to:
        check_reduced(x, xs, op)


@not_gloo
@pytest.mark.parametrize("dtype", each(COMPLEX))
@pytest.mark.parametrize("op", ["sum", "prod", "mean"])
def test_reduce_of_complex(op: str, dtype: torch.dtype, rank: int, size: int) -> None:
    xs = per_rank(size, (3, 5), dtype)
    x = xs[rank].clone()
    dist.reduce(x, 0, OPS[op])
    if rank == 0:
        check_reduced(x, xs, op)


@pytest.mark.parametrize(("op", "dtype"), reductions((torch.bfloat16, torch.float32, torch.int64)))
def test_reduce_scatter(op: str, dtype: torch.dtype, rank: int, size: int) -> None:
    pieces = [[numbers((2, 3), dtype, source, to) for to in range(size)] for source in range(size)]
    output = torch.zeros(2, 3, dtype=dtype)
    dist.reduce_scatter(output, [piece.clone() for piece in pieces[rank]], OPS[op])
    check_reduced(output, [given[rank] for given in pieces], op)


@pytest.mark.parametrize("stacked", FORMS)
@pytest.mark.parametrize(("op", "dtype"), reductions((torch.float16, torch.float32, torch.int64)))
def test_reduce_scatter_single(op: str, dtype: torch.dtype, stacked: bool, rank: int, size: int) -> None:
    xs = per_rank(size, (size, 2, 3) if stacked else (size * 2, 3), dtype)
    output = torch.zeros(2, 3, dtype=dtype)
    given = xs[rank].clone()
    dist.reduce_scatter_single(output, given, OPS[op])
    check_reduced(output, [x.reshape(size, 2, 3)[rank] for x in xs], op)
    same(given, xs[rank])


def scaled_sum(factor: float | Tensor) -> dist.ReduceOp:
    return dist._make_nccl_premul_sum(factor)


@not_gloo
@pytest.mark.parametrize("dtype", each(FLOATING))
@pytest.mark.parametrize("form", ["number", "tensor"])
def test_premultiplied_sum_scales_each_ranks_input(form: str, dtype: torch.dtype, rank: int, size: int) -> None:
    """Each rank has its own factor, as with NCCL."""
    xs = per_rank(size, (4, 3), dtype)
    factors = [0.5 * (i + 1) for i in range(size)]
    mine = factors[rank] if form == "number" else torch.tensor([factors[rank]], dtype=dtype)
    expected = reduced([x * factor for x, factor in zip(xs, factors)], "sum")
    everywhere, on_root, piece = xs[rank].clone(), xs[rank].clone(), torch.zeros(3, dtype=dtype)
    dist.all_reduce(everywhere, scaled_sum(mine))
    same(everywhere, expected)
    dist.reduce(on_root, 0, scaled_sum(mine))
    if rank == 0:
        same(on_root, expected)
    dist.reduce_scatter_single(piece, xs[rank][:1].expand(size, 3).contiguous(), scaled_sum(mine))
    same(piece, expected[0])


@not_gloo
@pytest.mark.parametrize("dtype", each(FLOATING))
@pytest.mark.parametrize("op", ["sum", "mean", "prod", "min", "max"])
def test_nan_and_infinity_propagate(op: str, dtype: torch.dtype, rank: int, size: int) -> None:
    xs = [x.abs() + 1 for x in per_rank(size, (3 * size,), dtype)]
    for i, x in enumerate(xs):  # a NaN from each rank in turn
        x[i], x[size + i] = float("nan"), float("inf")
    x = xs[rank].clone()
    dist.all_reduce(x, OPS[op])
    assert x[:size].isnan().all() and not x[size:].isnan().any()
    check_reduced(x, xs, op)


def test_large_all_reduce_is_the_same_on_every_rank(rank: int, size: int) -> None:
    xs = [torch.randn(LARGE, generator=torch.Generator().manual_seed(i)) for i in range(size)]
    x = xs[rank].clone()
    dist.all_reduce(x)
    # The float64 sum is exact enough; after cancellation the rounding of the inputs remains.
    torch.testing.assert_close(x.double(), torch.stack(xs).double().sum(0), rtol=1e-6, atol=2e-6)
    of_first = x.clone()
    dist.broadcast(of_first, 0)
    same(x, of_first)


@pytest.mark.parametrize("dtype", each(DTYPES))
def test_broadcast(dtype: torch.dtype, rank: int, size: int) -> None:
    for root in range(size):
        xs = per_rank(size, (3, 5), dtype, seed=root)
        x = xs[rank].clone()
        dist.broadcast(x, root)
        same(x, xs[root])


@pytest.mark.parametrize("dtype", each(DTYPES))
def test_all_gather(dtype: torch.dtype, rank: int, size: int) -> None:
    xs = per_rank(size, (3, 5), dtype)
    outputs = [torch.zeros(3, 5, dtype=dtype) for _ in range(size)]
    dist.all_gather(outputs, xs[rank].clone())
    for output, x in zip(outputs, xs):
        same(output, x)


@not_gloo
def test_all_gather_supports_different_shapes(rank: int, size: int) -> None:
    xs = [numbers(((i + 1) % 3, 2), torch.float32, i) for i in range(size)]  # 1, 2, 0 and 1 rows
    outputs = [torch.zeros_like(x) for x in xs]
    dist.all_gather(outputs, xs[rank].clone())
    for output, x in zip(outputs, xs):
        same(output, x)


@pytest.mark.parametrize("stacked", FORMS)
@pytest.mark.parametrize("dtype", each(DTYPES))
def test_all_gather_single(dtype: torch.dtype, stacked: bool, rank: int, size: int) -> None:
    xs = per_rank(size, (2, 3), dtype)
    output = torch.zeros((size, 2, 3) if stacked else (size * 2, 3), dtype=dtype)
    dist.all_gather_single(output, xs[rank].clone())
    same(output, torch.stack(xs) if stacked else torch.cat(xs))


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
def test_deprecated_names_still_work(rank: int, size: int) -> None:
    xs = per_rank(size, (size,))
    gathered, piece = torch.zeros(size * size), torch.zeros(1)
    dist.all_gather_into_tensor(gathered, xs[rank].clone())
    dist.reduce_scatter_tensor(piece, xs[rank].clone())
    same(gathered, torch.cat(xs))
    same(piece[0], torch.stack(xs)[:, rank].sum())


@pytest.mark.parametrize("dtype", each(DTYPES, gloo_lacks=COMPLEX))
def test_gather(dtype: torch.dtype, rank: int, size: int) -> None:
    for root in {0, size - 1}:
        xs = per_rank(size, (3, 5), dtype, seed=root)
        outputs = [torch.zeros(3, 5, dtype=dtype) for _ in range(size)] if rank == root else None
        dist.gather(xs[rank].clone(), outputs, root)
        for output, x in zip(outputs or [], xs):
            same(output, x)


@pytest.mark.parametrize("dtype", each(DTYPES))
def test_scatter(dtype: torch.dtype, rank: int, size: int) -> None:
    for root in {0, size - 1}:
        pieces = per_rank(size, (3, 5), dtype, seed=root)
        output = torch.zeros(3, 5, dtype=dtype)
        dist.scatter(output, [piece.clone() for piece in pieces] if rank == root else None, root)
        same(output, pieces[rank])


@pytest.mark.parametrize("dtype", each(DTYPES))
def test_all_to_all(dtype: torch.dtype, rank: int, size: int) -> None:
    outputs = [torch.zeros(2, 3, dtype=dtype) for _ in range(size)]
    dist.all_to_all(outputs, [numbers((2, 3), dtype, rank, to) for to in range(size)])
    for source, output in enumerate(outputs):
        same(output, numbers((2, 3), dtype, source, rank))


def rows(source: int, to: int) -> int:
    return (2 * source + to) % 3  # 0, 1 and 2: uneven, some empty, different on each rank


@not_gloo
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64, torch.complex64])
def test_all_to_all_supports_uneven_sizes(dtype: torch.dtype, rank: int, size: int) -> None:
    sent = [numbers((rows(rank, to), 2), dtype, rank, to) for to in range(size)]
    expected = [numbers((rows(source, rank), 2), dtype, source, rank) for source in range(size)]
    outputs = [torch.zeros_like(x) for x in expected]
    dist.all_to_all(outputs, sent)
    for output, x in zip(outputs, expected):
        same(output, x)


@pytest.mark.parametrize("dtype", each(DTYPES))
def test_all_to_all_single(dtype: torch.dtype, rank: int, size: int) -> None:
    xs = per_rank(size, (2 * size, 3), dtype)
    output = torch.zeros(2 * size, 3, dtype=dtype)
    dist.all_to_all_single(output, xs[rank].clone())
    same(output, torch.cat([x[2 * rank : 2 * rank + 2] for x in xs]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64, torch.complex64])
def test_all_to_all_single_supports_uneven_sizes(dtype: torch.dtype, rank: int, size: int) -> None:
    sent = [numbers((rows(rank, to), 2), dtype, rank, to) for to in range(size)]
    expected = [numbers((rows(source, rank), 2), dtype, source, rank) for source in range(size)]
    output = torch.zeros(sum(len(x) for x in expected), 2, dtype=dtype)
    dist.all_to_all_single(output, torch.cat(sent), [len(x) for x in expected], [len(x) for x in sent])
    same(output, torch.cat(expected))


def test_all_to_all_single_supports_one_sender(rank: int, size: int) -> None:
    sender = size - 1
    sent = numbers((size, 2), torch.float32, 1)
    mine = sent if rank == sender else sent[:0]
    to, source = [int(rank == sender)] * size, [int(i == sender) for i in range(size)]
    output = torch.zeros(1, 2)
    dist.all_to_all_single(output, mine, source, to)
    same(output, sent[rank : rank + 1])


@pytest.mark.parametrize("shape", [(0,), (2, 0), ()])
def test_supports_empty_tensors_and_scalars(shape: tuple[int, ...], rank: int, size: int) -> None:
    xs = per_rank(size, shape)
    summed, sent = xs[rank].clone(), xs[rank].clone()
    listed = [torch.full(shape, -9.0) for _ in range(size)]
    dist.all_reduce(summed)
    dist.broadcast(sent, size - 1)
    dist.all_gather(listed, xs[rank].clone())
    same(summed, reduced(xs, "sum"))
    same(sent, xs[-1])
    same(torch.stack(listed), torch.stack(xs))


@not_gloo
@pytest.mark.parametrize("shape", [(0,), (2, 0), ()])
def test_single_tensor_collectives_support_empty_tensors_and_scalars(
    shape: tuple[int, ...], rank: int, size: int
) -> None:
    xs = per_rank(size, shape)
    stacked, exchanged = torch.full((2, size, *shape), -9.0)
    piece = torch.full(shape, -9.0)
    dist.all_gather_single(stacked, xs[rank].clone())
    dist.all_to_all_single(exchanged, torch.stack(xs))
    dist.reduce_scatter_single(piece, torch.stack(xs))
    same(stacked, torch.stack(xs))
    same(exchanged, xs[rank].expand(size, *shape))
    same(piece, xs[rank] * size)


def test_large_tensors_arrive_complete(rank: int, size: int) -> None:
    """Several MiB and an odd number of elements per rank, which weft transfers in chunks."""
    xs = per_rank(size, (LARGE,))
    for root in {0, size - 1}:
        sent = xs[rank].clone()
        dist.broadcast(sent, root)
        same(sent, xs[root])
    gathered, pieces = torch.zeros(size * LARGE), per_rank(size, (size, LARGE), seed=1)
    dist.all_gather_single(gathered, xs[rank].clone())
    same(gathered, torch.cat(xs))
    piece = torch.zeros(LARGE)
    dist.reduce_scatter_single(piece, pieces[rank].flatten())
    same(piece, reduced([x[rank] for x in pieces], "sum"))
    exchanged = torch.zeros(size, LARGE)
    dist.all_to_all_single(exchanged, pieces[rank].clone())
    same(exchanged, torch.stack([x[rank] for x in pieces]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_large_reduce_and_gather(dtype: torch.dtype, rank: int, size: int) -> None:
    xs = per_rank(size, (LARGE,), dtype)
    summed, on_root = xs[rank].clone(), xs[rank].clone()
    dist.all_reduce(summed)
    same(summed, reduced(xs, "sum"))
    dist.reduce(on_root, size - 1)
    outputs = [torch.zeros(LARGE, dtype=dtype) for _ in range(size)] if rank == size - 1 else None
    dist.gather(xs[rank], outputs, size - 1)
    if outputs is not None:
        same(on_root, summed)
        same(torch.stack(outputs), torch.stack(xs))


def column(x: Tensor) -> Tensor:
    """A view with the same values; the elements between them must not change."""
    return torch.full((*x.shape, 2), -9.0, dtype=x.dtype).select(-1, 0).copy_(x)


def gaps(x: Tensor) -> Tensor:
    return torch.as_strided(x, x.shape, x.stride(), x.storage_offset() + 1)


def transposed(x: Tensor) -> Tensor:
    return x.t().contiguous().t()


@not_gloo
@pytest.mark.parametrize("layout", [column, transposed])
def test_collectives_accept_views(layout: Layout, rank: int, size: int) -> None:
    """Also if only one rank has another memory layout: elements correspond by index, not by address."""
    xs = per_rank(size, (3, 4))
    put = layout if rank == 0 else Tensor.clone
    summed, sent, on_root = put(xs[rank]), put(xs[rank]), put(xs[rank])
    dist.all_reduce(summed)
    dist.broadcast(sent, size - 1)
    dist.reduce(on_root, 0)
    same(summed, reduced(xs, "sum"))
    same(sent, xs[-1])
    if rank == 0:
        same(on_root, reduced(xs, "sum"))
        if layout is column:
            assert all((gaps(x) == -9).all() for x in (summed, sent, on_root))


@not_gloo
@pytest.mark.parametrize("layout", [column, transposed])
def test_list_collectives_accept_views(layout: Layout, rank: int, size: int) -> None:
    xs = per_rank(size, (3, 4))
    empty = torch.zeros(3, 4)
    gathered, exchanged = ([layout(empty) for _ in range(size)] for _ in range(2))
    on_root = [layout(empty) for _ in range(size)] if rank == 0 else None
    scattered, piece = layout(empty), layout(empty)
    dist.all_gather(gathered, layout(xs[rank]))
    dist.gather(layout(xs[rank]), on_root)
    dist.scatter(scattered, [layout(x) for x in xs] if rank == 0 else None)
    dist.reduce_scatter(piece, [layout(x) for x in xs])
    dist.all_to_all(exchanged, [layout(xs[rank] + to) for to in range(size)])
    same(torch.stack(gathered), torch.stack(xs))
    same(torch.stack(on_root or xs), torch.stack(xs))
    same(scattered, xs[rank])
    same(piece, xs[rank] * size)
    same(torch.stack(exchanged), torch.stack(xs) + rank)


@not_gloo
@pytest.mark.parametrize("layout", [column, transposed])
def test_single_tensor_collectives_accept_views(layout: Layout, rank: int, size: int) -> None:
    xs = per_rank(size, (size, 4))
    gathered, exchanged, piece = layout(torch.zeros(size * size, 4)), layout(torch.zeros(size, 4)), torch.zeros(8)[::2]
    dist.all_gather_single(gathered, layout(xs[rank]))
    dist.all_to_all_single(exchanged, layout(xs[rank]))
    dist.reduce_scatter_single(piece, layout(xs[rank]))
    same(gathered, torch.cat(xs))
    same(exchanged, torch.stack([x[rank] for x in xs]))
    same(piece, reduced([x[rank] for x in xs], "sum"))


@not_gloo
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", [Tensor.clone, column, transposed])
def test_half_precision_mean_rounds_once_and_does_not_overflow(
    layout: Layout, dtype: torch.dtype, rank: int, size: int
) -> None:
    xs = [
        (40000 + 100 * x).to(dtype) for x in per_rank(size, (6 * size, 5), torch.float32)
    ]  # the maximum of float16 is 65504
    expected = torch.stack([x.float() for x in xs]).mean(0).to(dtype)
    x = layout(xs[rank].clone())
    dist.all_reduce(x, dist.ReduceOp.AVG)
    same(x, expected)
    large = xs[rank].repeat(500, 1)  # large enough for weft's own algorithm
    dist.all_reduce(large, dist.ReduceOp.AVG)
    same(large, expected.repeat(500, 1))
    x = layout(xs[rank].clone())
    dist.reduce(x, 0, dist.ReduceOp.AVG)
    same(x, expected if rank == 0 else xs[rank])
    piece = layout(torch.zeros(6, 5, dtype=dtype))
    dist.reduce_scatter_single(piece, layout(xs[rank].clone()), dist.ReduceOp.AVG)
    same(piece, expected[6 * rank : 6 * (rank + 1)])
    entries = xs[rank].clone().to_sparse()
    dist.all_reduce(entries, dist.ReduceOp.AVG)
    assert entries.dtype == dtype
    same(entries.to_dense(), expected)


def sparse(rank: int, size: int, width: int = 3) -> Tensor:
    """Rows of an embedding's gradient: some unique to this rank, one repeated, none on the second rank."""
    indices = torch.tensor([[0, rank, rank, size]]) if rank != 1 else torch.zeros(1, 0, dtype=torch.int64)
    shape = (indices.shape[1], width)
    return torch.sparse_coo_tensor(
        indices, numbers(shape, torch.float32, rank), (size + 2, width), check_invariants=True
    )


def test_sparse_all_reduce(rank: int, size: int) -> None:
    x = sparse(rank, size)
    dist.all_reduce(x)
    assert x.is_sparse
    same(x.to_dense(), reduced([sparse(i, size).to_dense() for i in range(size)], "sum"))


def test_asynchronous_sparse_all_reduce(rank: int, size: int) -> None:
    x = sparse(rank, size)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    expected = reduced([sparse(i, size).to_dense() for i in range(size)], "sum")
    same(x.to_dense(), expected)
    same(work.get_future().value()[0].to_dense(), expected)  # where DDP reads it


def test_inputs_are_unchanged(rank: int, size: int) -> None:
    xs = per_rank(size, (size, 3))
    x = xs[rank].clone()
    dist.all_gather([torch.zeros(size, 3) for _ in range(size)], x)
    dist.all_to_all_single(torch.zeros(size, 3), x)
    dist.gather(x, [torch.zeros(size, 3) for _ in range(size)] if rank == 0 else None)
    same(x, xs[rank])


@several
@pytest.mark.parametrize("asynchronous", [False, True])
def test_barrier_waits_for_the_last_rank(asynchronous: bool, rank: int, size: int, tmp_path: Path) -> None:
    shared = [tmp_path]
    dist.broadcast_object_list(shared, 0)
    if rank == size - 1:
        time.sleep(0.2)  # lets the other ranks run ahead if the barrier does not block
        (shared[0] / "late").touch()
    work = dist.barrier(async_op=asynchronous)
    if work is not None:
        work.wait()
    assert (shared[0] / "late").exists()


def test_group_and_backend_report_the_backend_name() -> None:
    world = dist.group.WORLD
    assert dist.get_backend() == BACKEND
    assert world is not None and world._get_backend(torch.device("cpu")).name() == BACKEND


@not_gloo
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("copies", [1, 5000], ids=["small", "large"])
def test_half_precision_sum_rounds_once(copies: int, dtype: torch.dtype, rank: int, size: int) -> None:
    """Rounding after each addition would lose the small values: 256 + 1 is 256 in bfloat16."""
    big = 2 / torch.finfo(dtype).eps
    expected = torch.tensor(big + size - 1).to(dtype).expand(size * copies)
    x = torch.full((size * copies,), big if rank == 0 else 1.0, dtype=dtype)
    everywhere, at_root = x.clone(), x.clone()
    dist.all_reduce(everywhere)
    same(everywhere, expected)
    dist.reduce(at_root, 0)
    same(at_root, expected if rank == 0 else x)
    piece = torch.zeros(copies, dtype=dtype)
    dist.reduce_scatter_single(piece, x)
    same(piece, expected[:copies])
