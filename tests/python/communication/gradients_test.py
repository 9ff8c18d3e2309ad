"""Gradients of every operation against one process, the adjoint identity, and second derivatives."""

import pytest
import torch
from reference import CASES, Case, expected_gradients, inner, values
from torch import Tensor

import weft

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def complex_fits(case: Case, dtype: torch.dtype) -> bool:
    return not dtype.is_complex or (case.linear and not case.ordered) or case.name == "all_reduce-prod"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_match_one_process(case: Case, dtype: torch.dtype, comm: weft.Communicator) -> None:
    if not complex_fits(case, dtype):
        return
    xs = case.inputs(comm.size, dtype, seed=1)
    weights = [values(tuple(y.shape), dtype, 2, rank) for rank, y in enumerate(case.expect(xs))]
    x = xs[comm.rank].requires_grad_()
    weft.backward(inner(weights[comm.rank], case.run(comm, x)))
    assert x.grad is not None
    torch.testing.assert_close(x.grad, expected_gradients(case, xs, weights)[comm.rank])
    assert weft.tape_length() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", [case for case in CASES if case.linear], ids=str)
def test_half_precision_gradients_keep_their_dtype(case: Case, dtype: torch.dtype, comm: weft.Communicator) -> None:
    xs = [x.to(dtype) for x in case.inputs(comm.size, torch.float32, seed=1)]
    weights = [values(tuple(y.shape), dtype, 2, rank) for rank, y in enumerate(case.expect(xs))]
    x = xs[comm.rank].requires_grad_()
    weft.backward(inner(weights[comm.rank], case.run(comm, x)))
    assert x.grad is not None and x.grad.dtype == dtype
    exact = expected_gradients(case, [x.double() for x in xs], [w.double() for w in weights])[comm.rank]
    torch.testing.assert_close(x.grad.double(), exact, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("case", [case for case in CASES if case.linear], ids=str)
def test_satisfies_the_adjoint_identity(case: Case, dtype: torch.dtype, comm: weft.Communicator) -> None:
    """<Ax, y> = <x, A'y>, summed over the ranks."""
    if not complex_fits(case, dtype):
        return
    x = case.inputs(comm.size, dtype, seed=3)[comm.rank].requires_grad_()
    ax = case.run(comm, x)
    y = values(tuple(ax.shape), dtype, 4, comm.rank)
    (aty,) = weft.grad(ax, x, y)
    both = comm.all_reduce(torch.stack([inner(ax.detach(), y), inner(x.detach(), aty)]))
    torch.testing.assert_close(both[0], both[1])


class Share(torch.autograd.Function):
    """Takes this rank's part of a vector that all ranks have. The adjoint of Join."""

    @staticmethod
    def forward(ctx, whole: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        return whole.split(sizes)[weft.world().rank].clone()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        return Join.apply(gradient, ctx.sizes), None


class Join(torch.autograd.Function):
    """Concatenates all ranks' parts on all ranks."""

    @staticmethod
    def forward(ctx, part: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        return weft.world().all_gather(part.detach())

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        return Share.apply(gradient, ctx.sizes), None


# Their second derivatives communicate values that only the root uses; without a tape the other ranks omit that
# communication. test_second_derivatives_match_one_process covers them with a tape.
NEED_A_TAPE = ("reduce-prod", "reduce-min", "reduce-max", "scatter")


def replicated(case: Case, comm: weft.Communicator, shapes: list[torch.Size], results: list[int]):
    """Returns the operation as a function that every rank evaluates at the same point, for gradcheck."""

    def function(whole: Tensor) -> Tensor:
        x = Share.apply(whole, [shape.numel() for shape in shapes]).reshape(shapes[comm.rank])
        return Join.apply(case.run(comm, x).reshape(-1), results)

    return function


def checked(case: Case, comm: weft.Communicator, whole: Tensor) -> None:
    shapes = [x.shape for x in case.inputs(comm.size, torch.float64)]
    parts = whole.detach().split([shape.numel() for shape in shapes])
    results = [y.numel() for y in case.expect([x.reshape(s) for x, s in zip(parts, shapes, strict=True)])]
    function = replicated(case, comm, shapes, results)
    with weft.tape(False):
        assert torch.autograd.gradcheck(function, (whole,), fast_mode=comm.size > 2)
        if not case.name.startswith(NEED_A_TAPE):
            assert torch.autograd.gradgradcheck(function, (whole,), fast_mode=comm.size > 2)


# Without a tape, nothing connects a send to the receive on the other rank.
@pytest.mark.parametrize("case", [case for case in CASES if "recv" not in case.name], ids=str)
def test_passes_gradcheck_and_gradgradcheck(case: Case, comm: weft.Communicator) -> None:
    whole = torch.cat([x.reshape(-1) for x in case.inputs(comm.size, torch.float64, seed=5)])
    checked(case, comm, whole.requires_grad_())


def curvature(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Returns a loss with nonzero second derivatives, also for linear operations."""
    return inner(w, y * y) + (x * x * x).sum()


@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_second_derivatives_match_one_process(case: Case, zeros: int, comm: weft.Communicator) -> None:
    """Checks the gradient and a Hessian-vector product; products also with zero factors."""
    if zeros and "prod" not in case.name:
        return
    xs = case.inputs(comm.size, torch.float64, seed=7)
    for x in xs[:zeros]:
        x[0, 0] = 0
    xs = [x.requires_grad_() for x in xs]
    vectors = [values(tuple(x.shape), x.dtype, 8, rank) for rank, x in enumerate(xs)]
    ys = case.expect(xs)
    weights = [values(tuple(y.shape), y.dtype, 9, rank) for rank, y in enumerate(ys)]
    total = torch.stack([curvature(x, y, w) for x, y, w in zip(xs, ys, weights, strict=True)]).sum()
    gradients = torch.autograd.grad(total, xs, create_graph=True)
    along = torch.stack([(g * v).sum() for g, v in zip(gradients, vectors, strict=True)]).sum()
    expected = torch.autograd.grad(along, xs)[comm.rank]

    x = xs[comm.rank].detach().requires_grad_()
    (g,) = weft.grad(curvature(x, case.run(comm, x), weights[comm.rank]), x, create_graph=True)
    (result,) = weft.grad((g * vectors[comm.rank]).sum(), x)
    torch.testing.assert_close(g, gradients[comm.rank])
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("op", ["min", "max"])
def test_ties_are_shared_equally(op: str, comm: weft.Communicator) -> None:
    x = torch.tensor([1.0, 2.0 if comm.rank == 0 else 3.0], dtype=torch.float64, requires_grad=True)
    operations = {
        "all_reduce": lambda: comm.all_reduce(x, op),
        "reduce": lambda: comm.reduce(x, op),
        "reduce_scatter": lambda: comm.reduce_scatter(x, op),
    }
    winners = [1, 1] if op == "min" else [1, comm.size - 1 or 1]
    wins = [True, comm.rank == 0 if op == "min" else comm.rank > 0 or comm.size == 1]
    first = 1 / comm.size
    for name, operation in operations.items():
        losses = comm.size if name == "all_reduce" else 1
        (g,) = weft.grad(operation().sum(), x)
        expected = [losses * first, losses / winners[1] if wins[1] else 0.0]
        assert g.tolist() == pytest.approx(expected), name


def test_logical_reductions_have_no_gradient(comm: weft.Communicator) -> None:
    x = torch.ones(2, dtype=torch.float32, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"lor|land|not defined"):
        y = comm.all_reduce(x, "lor")
        weft.backward(y.sum())
    weft.reset_tape()
    assert comm.all_reduce(torch.ones(1)).item() == comm.size
