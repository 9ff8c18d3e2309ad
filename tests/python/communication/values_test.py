"""Results of every operation for every dtype, against one process."""

import pytest
import torch
from reference import CASES, Case

import weft

EXACT = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]


def allowed(case: Case, dtype: torch.dtype) -> bool:
    if "mean" in case.name:
        return dtype.is_floating_point or dtype.is_complex
    return not (case.ordered and dtype.is_complex)


@pytest.mark.parametrize("dtype", EXACT + FLOATING + COMPLEX, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_match_one_process(case: Case, dtype: torch.dtype, comm: weft.Communicator) -> None:
    if not allowed(case, dtype):
        return
    xs = case.inputs(comm.size, dtype)
    expected = case.expect(xs)[comm.rank]
    result = case.run(comm, xs[comm.rank])
    assert result.dtype == dtype
    assert result.is_contiguous()
    # Each addition between ranks rounds; sums may cancel, so the bound is absolute.
    absolute = {torch.float16: 1e-2, torch.bfloat16: 8e-2}.get(dtype)
    torch.testing.assert_close(result, expected, atol=absolute, rtol=None if absolute is None else 1e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", [case for case in CASES if "mean" in case.name], ids=str)
def test_half_precision_mean_rounds_once_and_does_not_overflow(
    case: Case, dtype: torch.dtype, comm: weft.Communicator
) -> None:
    xs = [(40000 + 100 * x).to(dtype) for x in case.inputs(comm.size, torch.float64)]  # the maximum of float16 is 65504
    expected = case.expect([x.float() for x in xs])[comm.rank].to(dtype)
    result = case.run(comm, xs[comm.rank])
    assert result.dtype == dtype
    assert torch.equal(result, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("op", ["sum", "prod"])
def test_half_precision_rounds_once(op: str, dtype: torch.dtype, comm: weft.Communicator) -> None:
    """The inputs have 8 bits, so float32 results of 3 ranks are exact."""
    xs = torch.rand(comm.size, 100 * comm.size, generator=torch.Generator().manual_seed(7)) + 0.5
    xs = xs.to(torch.bfloat16).to(dtype)
    expected = (xs.float().sum(0) if op == "sum" else xs.float().prod(0)).to(dtype)
    x, mine = xs[comm.rank], slice(100 * comm.rank, 100 * (comm.rank + 1))
    assert torch.equal(comm.all_reduce(x, op), expected)
    assert torch.equal(comm.iall_reduce(x, op).wait(), expected)
    assert torch.equal(comm.reduce_scatter(x, op), expected[mine])
    reduced, scanned = comm.reduce(x, op, root=0), comm.scan(x, op)
    assert comm.rank > 0 or torch.equal(reduced, expected)
    assert comm.rank < comm.size - 1 or torch.equal(scanned, expected)


@pytest.mark.parametrize("op", ["land", "lor", "lxor"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float16, torch.float64], ids=str)
def test_logical_reduction_of_one_contribution_is_0_or_1(op: str, dtype: torch.dtype, comm: weft.Communicator) -> None:
    x = torch.tensor([0, 1, 2, 5], dtype=dtype)
    alone = comm.split(comm.rank)
    assert alone is not None
    truth = torch.tensor([0, 1, 1, 1], dtype=dtype)
    results = [alone.all_reduce(x, op), alone.reduce(x, op, root=0), alone.reduce_scatter(x, op), alone.scan(x, op)]
    results.append(alone.iall_reduce(x, op).wait())
    if comm.rank == 0:
        results.append(comm.scan(x, op))
    else:
        comm.scan(x, op)
    after_first = comm.exscan(x, op)
    if comm.rank == 1:
        results.append(after_first)
    for result in results:
        assert torch.equal(result, truth), result
    alone.free()


def test_nonblocking_mean_does_not_overflow(comm: weft.Communicator) -> None:
    x = torch.full((5,), 40000.0, dtype=torch.float16, requires_grad=True)
    y = comm.iall_reduce(x, "mean").wait()
    assert y.dtype == torch.float16
    assert (y == 40000).all()
    y.backward(torch.full((5,), 60000.0, dtype=torch.float16))
    assert x.grad is not None
    assert (x.grad == 60000).all()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_non_contiguous_inputs_give_the_same(case: Case, comm: weft.Communicator) -> None:
    x = case.inputs(comm.size, torch.float64)[comm.rank]
    if x.dim() < 2:
        return
    strided = torch.empty((*x.shape, 2), dtype=x.dtype)[..., 1].copy_(x)
    torch.testing.assert_close(case.run(comm, strided.mT.contiguous().mT), case.run(comm, x))
    torch.testing.assert_close(case.run(comm, strided), case.run(comm, x))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_conjugated_and_negated_views_are_sent_by_value(case: Case, comm: weft.Communicator) -> None:
    if case.ordered:
        return
    xs = case.inputs(comm.size, torch.complex128)
    torch.testing.assert_close(
        case.run(comm, xs[comm.rank].conj()), case.expect([x.conj().resolve_conj() for x in xs])[comm.rank]
    )
    mine = xs[comm.rank].conj().imag
    torch.testing.assert_close(case.run(comm, mine), case.expect([x.conj().imag.resolve_neg() for x in xs])[comm.rank])


@pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
def test_supports_wide_unsigned_integers(dtype: torch.dtype, comm: weft.Communicator) -> None:
    x = torch.tensor([comm.rank, 3], dtype=dtype)
    assert comm.all_gather(x).tolist() == [v for rank in range(comm.size) for v in (rank, 3)]
    assert comm.broadcast(x, comm.size - 1).tolist() == [comm.size - 1, 3]
    assert comm.all_reduce(x).tolist() == [sum(range(comm.size)), 3 * comm.size]


@pytest.mark.parametrize("op", ["land", "lor", "lxor", "band", "bor", "bxor"])
@pytest.mark.parametrize("dtype", EXACT, ids=str)
def test_logical_and_bitwise_reductions_match_torch(op: str, dtype: torch.dtype, comm: weft.Communicator) -> None:
    rows = [torch.tensor([0, 1, r % 2, (r + 1) % 3], dtype=torch.int64).to(dtype) for r in range(comm.size)]
    function = getattr(torch, {"l": "logical_", "b": "bitwise_"}[op[0]] + op[1:])
    expected = rows[0].bool().to(dtype) if op[0] == "l" else rows[0]
    for row in rows[1:]:
        expected = function(expected, row).to(dtype)
    torch.testing.assert_close(comm.all_reduce(rows[comm.rank], op), expected)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("op", ["sum", "mean", "prod", "min", "max"])
def test_nan_and_infinity_propagate(op: str, bad: float, dtype: torch.dtype, comm: weft.Communicator) -> None:
    rows = [torch.tensor([1.0, bad if r == comm.size - 1 else 2.0], dtype=dtype) for r in range(comm.size)]
    stacked = torch.stack(rows).double()
    expected = {
        "sum": stacked.sum(0),
        "mean": stacked.mean(0),
        "prod": stacked.prod(0),
        "min": stacked.amin(0),
        "max": stacked.amax(0),
    }[op]
    torch.testing.assert_close(comm.all_reduce(rows[comm.rank], op), expected.to(dtype), equal_nan=True)
    torch.testing.assert_close(comm.scan(rows[comm.rank], op)[0], rows[0][0] * (comm.rank + 1 if op == "sum" else 1))


def test_supports_empty_tensors(comm: weft.Communicator) -> None:
    x = torch.empty(0, 3)
    assert comm.all_reduce(x).shape == (0, 3)
    assert comm.all_gather(x).shape == (0, 3)
    assert comm.all_gather(x, 1).shape == (0, 3 * comm.size)
    assert comm.all_to_all(x).shape == (0, 3)
    assert comm.scan(x).shape == (0, 3)
    assert comm.sendrecv(x, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size).shape == (0, 3)


def test_scatter_needs_no_tensor_on_other_ranks(comm: weft.Communicator) -> None:
    whole = torch.arange(5 * 3, dtype=torch.int16).reshape(5, 3)
    piece = comm.scatter(whole if comm.rank == 0 else None)
    torch.testing.assert_close(piece, whole.tensor_split(comm.size)[comm.rank])


def test_large_tensors_arrive_complete(comm: weft.Communicator) -> None:
    x = torch.full((1 << 20,), float(comm.rank + 1))
    total = comm.size * (comm.size + 1) / 2
    assert bool((comm.all_reduce(x) == total).all())
    received = comm.sendrecv(x, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size)
    assert bool((received == (comm.rank - 1) % comm.size + 1).all())


def test_input_and_result_do_not_share_memory(comm: weft.Communicator) -> None:
    for operation in (comm.all_reduce, comm.broadcast, comm.all_gather, comm.scan):
        x = torch.ones(3)
        operation(x).add_(1)
        assert x.tolist() == [1, 1, 1]
