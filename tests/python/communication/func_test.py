"""Derivatives by torch.func and by dual numbers, first and second order, against one process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.autograd.forward_ad as fwd
from reference import CASES, Case, inner, values
from torch import Tensor
from torch.func import grad, jvp, vjp

import weft

pytestmark = pytest.mark.usefixtures("works_afterwards")

# The others are point-to-point or non-blocking, which transforms reject.
COLLECTIVES = [case for case in CASES if not case.name.startswith(("i", "sendrecv"))]

Loss = Callable[[Tensor], Tensor]
Losses = Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]


class Problem:
    """A loss of every rank with nonzero second derivatives: of this rank with weft, and of all ranks in one process."""

    def __init__(self, case: Case, comm: weft.Communicator, run: Callable[[Tensor], Tensor] | None = None) -> None:
        self.rank = comm.rank
        self.xs = tuple(case.inputs(comm.size, torch.float64, seed=11))
        self.vs = tuple(values(tuple(x.shape), x.dtype, 12, rank) for rank, x in enumerate(self.xs))
        self.us = tuple(values(tuple(x.shape), x.dtype, 13, rank) for rank, x in enumerate(self.xs))
        weights = [values(tuple(y.shape), y.dtype, 14, rank) for rank, y in enumerate(case.expect(list(self.xs)))]
        call = run or (lambda x: case.run(comm, x))

        def loss(x: Tensor) -> Tensor:
            y = call(x.sin())
            return inner(weights[comm.rank], y * y) + (x * x * x).sum()

        def losses(xs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            ys = case.expect([x.sin() for x in xs])
            return tuple(inner(w, y * y) + (x * x * x).sum() for w, y, x in zip(weights, ys, xs, strict=True))

        self.loss, self.losses = loss, losses

    @property
    def x(self) -> Tensor:
        return self.xs[self.rank]

    @property
    def v(self) -> Tensor:
        return self.vs[self.rank]

    @property
    def u(self) -> Tensor:
        return self.us[self.rank]

    def total(self, xs: tuple[Tensor, ...]) -> Tensor:
        return torch.stack(self.losses(xs)).sum()

    def gradient(self) -> Tensor:
        return grad(self.total)(self.xs)[self.rank]

    def tangent(self) -> Tensor:
        return jvp(self.losses, (self.xs,), (self.vs,))[1][self.rank]

    def hessian_product(self) -> Tensor:
        return jvp(grad(self.total), (self.xs,), (self.vs,))[1][self.rank]

    def second_tangent(self) -> Tensor:
        def first(xs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return jvp(self.losses, (xs,), (self.vs,))[1]

        return jvp(first, (self.xs,), (self.us,))[1][self.rank]


@pytest.fixture(params=COLLECTIVES, ids=str)
def problem(request: pytest.FixtureRequest, comm: weft.Communicator) -> Problem:
    return Problem(request.param, comm)


def test_grad(problem: Problem) -> None:
    torch.testing.assert_close(grad(problem.loss)(problem.x), problem.gradient())


def test_vjp(problem: Problem) -> None:
    loss, pull_back = vjp(problem.loss, problem.x)
    for _ in range(2):
        torch.testing.assert_close(pull_back(torch.ones_like(loss))[0], problem.gradient())


def test_jvp(problem: Problem) -> None:
    torch.testing.assert_close(jvp(problem.loss, (problem.x,), (problem.v,))[1], problem.tangent())


def test_reverse_over_reverse(problem: Problem) -> None:
    def along(x: Tensor) -> Tensor:
        return inner(grad(problem.loss)(x), problem.v)

    torch.testing.assert_close(grad(along)(problem.x), problem.hessian_product())


def test_forward_over_reverse(problem: Problem) -> None:
    result = jvp(grad(problem.loss), (problem.x,), (problem.v,))[1]
    torch.testing.assert_close(result, problem.hessian_product())


def test_reverse_over_forward(problem: Problem) -> None:
    result = grad(lambda x: jvp(problem.loss, (x,), (problem.v,))[1])(problem.x)
    torch.testing.assert_close(result, problem.hessian_product())


def test_forward_over_forward(problem: Problem) -> None:
    result = jvp(lambda x: jvp(problem.loss, (x,), (problem.v,))[1], (problem.x,), (problem.u,))[1]
    torch.testing.assert_close(result, problem.second_tangent())


def test_reverse_over_forward_with_dual_numbers(problem: Problem) -> None:
    x = problem.x.clone().requires_grad_()
    with fwd.dual_level():
        tangent = fwd.unpack_dual(problem.loss(fwd.make_dual(x, problem.v))).tangent
        assert tangent is not None
        (result,) = weft.grad(tangent, x)
    torch.testing.assert_close(result, problem.hessian_product())


def test_forward_over_reverse_with_dual_numbers(problem: Problem) -> None:
    x = problem.x.clone().requires_grad_()
    with fwd.dual_level():
        dual = fwd.make_dual(x, problem.v)
        (gradient,) = weft.grad(problem.loss(dual), x, create_graph=True)
        result = fwd.unpack_dual(gradient).tangent
        assert result is not None
        result = result.detach()
    torch.testing.assert_close(result, problem.hessian_product())


def on_last_rank(comm: weft.Communicator, x: Tensor) -> Tensor:
    """The input of the last rank; constants elsewhere, which depend on nothing."""
    return x if comm.rank == comm.size - 1 else torch.zeros(x.shape, dtype=x.dtype)


ONE_HOLDS_THE_INPUT: dict[str, Callable[[weft.Communicator, Tensor], Tensor]] = {
    "scatter": lambda c, x: c.scatter(x if c.rank == c.size - 1 else None, root=c.size - 1),
    "broadcast": lambda c, x: c.broadcast(on_last_rank(c, x), c.size - 1),
    "all_reduce": lambda c, x: c.all_reduce(on_last_rank(c, x)),
    "all_reduce-prod": lambda c, x: c.all_reduce(on_last_rank(c, x) + 1, "prod"),
    "all_reduce-max": lambda c, x: c.all_reduce(on_last_rank(c, x), "max"),
    "all_gather": lambda c, x: c.all_gather(on_last_rank(c, x)),
    "gather": lambda c, x: c.gather(on_last_rank(c, x)),
    "reduce": lambda c, x: c.reduce(on_last_rank(c, x)),
    "reduce-min": lambda c, x: c.reduce(on_last_rank(c, x), "min"),
    "reduce_scatter": lambda c, x: c.reduce_scatter(on_last_rank(c, x)),
    "reduce_scatter-prod": lambda c, x: c.reduce_scatter(on_last_rank(c, x) + 1, "prod"),
    "all_to_all": lambda c, x: c.all_to_all(on_last_rank(c, x)),
    "scan": lambda c, x: c.scan(on_last_rank(c, x), reverse=True),
    "scan-max": lambda c, x: c.scan(on_last_rank(c, x), "max", reverse=True),
}


class OneInput:
    """A loss that depends on the last rank's input only, with its derivatives by dual numbers and plain autograd."""

    def __init__(self, name: str, comm: weft.Communicator) -> None:
        shape = (2 * comm.size + 1,)
        self.x, self.v = values(shape, torch.float64, 21), values(shape, torch.float64, 22)

        def loss(x: Tensor) -> Tensor:
            return ONE_HOLDS_THE_INPUT[name](comm, x.sin()).square().sum() * (comm.rank + 1)

        self.loss = loss
        x = self.x.clone().requires_grad_()
        (g,) = weft.grad(loss(x), x, create_graph=True)
        self.gradient = g.detach()
        (self.hessian_product,) = weft.grad(inner(g, self.v), x)
        step = 1e-6
        with torch.no_grad():
            self.tangent = (loss(self.x + step * self.v) - loss(self.x - step * self.v)) / (2 * step)


@pytest.mark.parametrize("name", ONE_HOLDS_THE_INPUT)
def test_one_rank_holds_the_input(name: str, comm: weft.Communicator) -> None:
    case = OneInput(name, comm)
    torch.testing.assert_close(grad(case.loss)(case.x), case.gradient)
    torch.testing.assert_close(jvp(case.loss, (case.x,), (case.v,))[1], case.tangent, rtol=1e-6, atol=1e-6)
    mixed = jvp(grad(case.loss), (case.x,), (case.v,))[1]
    torch.testing.assert_close(mixed, case.hessian_product)
    mixed = grad(lambda x: jvp(case.loss, (x,), (case.v,))[1])(case.x)
    torch.testing.assert_close(mixed, case.hessian_product)


def test_grad_performs_communication_that_the_result_does_not_use(comm: weft.Communicator) -> None:
    def loss(x: Tensor) -> Tensor:
        y = comm.all_reduce(x * x)
        comm.all_gather(y)
        return y.sum() if comm.rank == 0 else torch.zeros(())

    x = torch.full((2,), 3.0)
    assert grad(loss)(x).tolist() == [6, 6]
    if comm.size == 1:
        assert torch.func.jacrev(loss)(x).tolist() == [6, 6]
        return
    # Only rank 0's gradient has a batch dimension.
    with pytest.raises(RuntimeError, match="do not agree on an operation"):
        torch.func.jacrev(loss)(x)
    comm.barrier()  # all ranks raised the error, so none of them interrupts the others


def test_grad_of_a_function_without_communication(comm: weft.Communicator) -> None:
    assert grad(lambda x: x.square().sum())(torch.ones(2)).tolist() == [2, 2]
    gradient, aux = grad(lambda x: (comm.all_reduce(x).sum(), x * 2), has_aux=True)(torch.ones(2))
    assert gradient.tolist() == [comm.size] * 2 and aux.tolist() == [2, 2]


def test_grad_leaves_the_outer_tape_alone(comm: weft.Communicator) -> None:
    w = torch.ones(2, requires_grad=True)
    outer = comm.all_reduce(w * 2)
    inner_gradient = grad(lambda x: comm.all_reduce(x * x * w).sum())(torch.full((2,), 3.0))
    weft.backward((outer + inner_gradient).sum())
    # d/dw of 2 w n, and of 2 x w n, each summed over all ranks' losses.
    assert w.grad is not None and w.grad.tolist() == [2 * comm.size + 6 * comm.size] * 2


def test_jacobians_and_hessians(comm: weft.Communicator) -> None:
    def reduced(x: Tensor) -> Tensor:
        return comm.all_reduce(x.sin())

    x = torch.linspace(0.1, 1, 3, dtype=torch.float64)
    expected = torch.diag(x.cos()) * comm.size
    torch.testing.assert_close(torch.func.jacfwd(reduced)(x), expected)
    torch.testing.assert_close(torch.func.jacrev(reduced)(x), expected)
    hessian = torch.func.hessian(lambda x: reduced(x).sum())(x)
    torch.testing.assert_close(hessian, torch.diag(-x.sin()) * comm.size)


def test_ranks_inside_different_transforms_raise(comm: weft.Communicator) -> None:
    if comm.size == 1:
        return
    x = torch.ones(2)

    def loss(x: Tensor) -> Tensor:
        return comm.all_reduce(x).sum()

    with pytest.raises(weft.Disagreement, match=r"inside torch\.func with 1 level"):
        grad(loss)(x) if comm.rank == 0 else loss(x)


@pytest.mark.parametrize("name", ["iall_reduce", "iall_gather", "ibroadcast"])
def test_nonblocking_operations_reject_forward_mode(name: str, comm: weft.Communicator) -> None:
    def run(x: Tensor) -> Tensor:
        return getattr(comm, name)(x).wait()

    with pytest.raises(RuntimeError, match=rf"{name} does not support the transforms of torch\.func"):
        jvp(run, (torch.ones(2),), (torch.ones(2),))
    with fwd.dual_level(), pytest.raises(RuntimeError, match=rf"{name} does not carry forward-mode derivatives"):
        x = torch.ones(2)
        run(fwd.make_dual(x, x) if comm.rank == 0 else x)


def test_messages_reject_transforms(comm: weft.Communicator) -> None:
    def ring(x: Tensor) -> Tensor:
        return comm.sendrecv(x, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size).sum()

    with pytest.raises(RuntimeError, match=r"isend does not support the transforms of torch\.func"):
        grad(ring)(torch.ones(2))


def test_compiled_transforms_do_not_change(comm: weft.Communicator) -> None:
    compiled = torch.compile(grad(lambda x: x.sin().sum()), fullgraph=True, backend="aot_eager")
    x = torch.linspace(0, 1, 3)
    torch.testing.assert_close(compiled(x), x.cos())
