"""torch's transforms of the operations: opcheck, torch.compile, forward-mode derivatives, vmap."""

import pytest
import torch
from torch import Tensor

import weft

CALLS = {
    "all_reduce": ("sum",),
    "reduce": ("sum", 0),
    "broadcast": (0,),
    "all_gather": (0,),
    "gather": (0, 0),
    "scatter": (0, 0, None),
    "all_to_all": (0, 1, None),
    "reduce_scatter": ("sum", 0, None),
    "scan": ("sum", False, True),
}


@pytest.fixture(autouse=True)
def clean_tape():
    yield
    weft.reset_tape()


@pytest.mark.parametrize("name", CALLS)
def test_passes_opcheck(name: str, comm: weft.Communicator) -> None:
    op = getattr(torch.ops.weft, name).default
    rows = 2 * comm.size
    for x in (torch.randn(rows, 2), torch.randn(2, rows, requires_grad=True).mT, torch.randn(rows, 3, 1)):
        with weft.tape(False):
            torch.library.opcheck(op, (x, *CALLS[name], comm._id))


def uneven(c: weft.Communicator) -> list[int]:
    return [2 * c.size - (c.size - 1), *[1] * (c.size - 1)]


FUNCTIONS = {
    "all_reduce": lambda c, x: c.all_reduce(x * 2).sin(),
    "all_gather": lambda c, x: c.all_gather(x.sin(), -1) * 3,
    "reduce_scatter": lambda c, x: c.reduce_scatter(x.cos()) * 3,
    "broadcast": lambda c, x: c.broadcast(x) * x,
    "all_to_all": lambda c, x: c.all_to_all(x, 0, 1).sin(),
    "scan": lambda c, x: c.scan(x).exp(),
    "reduce_scatter-prod": lambda c, x: c.reduce_scatter(x.cos(), "prod") * 3,
    "reduce_scatter-uneven": lambda c, x: c.reduce_scatter(x.cos(), sizes=uneven(c)) * 3,
    "reduce_scatter-uneven-prod": lambda c, x: c.reduce_scatter(x.cos(), "prod", 0, uneven(c)) * 3,
    "reduce_scatter-remainder-max": lambda c, x: c.reduce_scatter(x.cos()[1:], "max") * 3,
    "scatter-uneven": lambda c, x: c.scatter(x.cos(), sizes=uneven(c)) * 3,
    "all_to_all-remainder": lambda c, x: c.all_to_all(x[1:], 0, 1).sin(),
    "chain": lambda c, x: c.all_reduce(c.reduce_scatter(c.all_gather(x * x))) * x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_equals_eager(name: str, comm: weft.Communicator) -> None:
    function = FUNCTIONS[name]
    data = torch.randn(2 * comm.size, 3, generator=torch.Generator().manual_seed(comm.rank))
    eager, traced = data.clone().requires_grad_(), data.clone().requires_grad_()
    torch._dynamo.reset()  # one lambda is compiled for many functions
    compiled = torch.compile(lambda x: function(comm, x), fullgraph=True, backend="aot_eager")
    expected = function(comm, eager)
    result = compiled(traced)
    torch.testing.assert_close(result, expected)
    weft.backward(expected.square().sum())
    result.square().sum().backward()
    torch.testing.assert_close(traced.grad, eager.grad)


def test_compiled_keeps_unused_results(comm: weft.Communicator) -> None:
    def function(x: Tensor) -> Tensor:
        comm.all_reduce(x * comm.rank)
        return x + 1

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        # Only rank 0 compiles; the other ranks wait for it in the same all_reduce.
        assert (compiled if comm.rank == 0 else function)(torch.ones(2)).tolist() == [2, 2]


def test_compiled_supports_changing_shapes(comm: weft.Communicator) -> None:
    compiled = torch.compile(lambda x: comm.all_gather(x), fullgraph=True, backend="aot_eager")
    for rows in (1, 2, 5):
        assert compiled(torch.ones(rows, 2)).shape == (rows * comm.size, 2)


@pytest.mark.parametrize("op", ["sum", "mean", "prod", "min", "max"])
def test_forward_mode_of_reductions_matches_one_process(op: str, comm: weft.Communicator) -> None:
    generator = torch.Generator().manual_seed(3)
    xs, ts = torch.randn(2, comm.size, 4, dtype=torch.float64, generator=generator)

    def everything(rows: Tensor) -> Tensor:
        return {"sum": rows.sum, "mean": rows.mean, "prod": rows.prod, "min": rows.amin, "max": rows.amax}[op](0)

    expected = torch.func.jvp(everything, (xs,), (ts,))
    result = torch.func.jvp(lambda x: comm.all_reduce(x, op), (xs[comm.rank],), (ts[comm.rank],))
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize(
    "name", ["broadcast", "all_gather", "gather", "reduce_scatter", "scan", "all_to_all", "reduce"]
)
def test_forward_mode_of_linear_operations_is_the_operation(name: str, comm: weft.Communicator) -> None:
    x, t = torch.randn(2, 2 * comm.size, 3, dtype=torch.float64)
    operation = getattr(comm, name)
    y, dy = torch.func.jvp(operation, (x,), (t,))
    torch.testing.assert_close(y, operation(x))
    torch.testing.assert_close(dy, operation(t))


def test_tangent_on_one_rank_reaches_all_ranks(comm: weft.Communicator) -> None:
    with torch.autograd.forward_ad.dual_level():
        x = torch.ones(2)
        if comm.rank == 0:
            x = torch.autograd.forward_ad.make_dual(x, torch.full((2,), 3.0))
        tangent = torch.autograd.forward_ad.unpack_dual(comm.all_reduce(x)).tangent
        assert tangent is not None and tangent.tolist() == [3, 3]


@pytest.mark.parametrize("in_dim", [0, 1, -1])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap_matches_separate_calls(name: str, in_dim: int, comm: weft.Communicator) -> None:
    batch = torch.randn(4, 2 * comm.size, 3, generator=torch.Generator().manual_seed(comm.rank))
    expected = torch.stack([FUNCTIONS[name](comm, x) for x in batch])
    result = torch.vmap(lambda x: FUNCTIONS[name](comm, x), in_dims=in_dim)(batch.movedim(0, in_dim))
    torch.testing.assert_close(result, expected)


def test_vmap_supports_scalars(comm: weft.Communicator) -> None:
    batch = torch.arange(3.0) + 10 * comm.rank
    assert torch.vmap(comm.all_reduce)(batch).tolist() == comm.all_reduce(batch).tolist()
    expected = torch.stack([comm.all_gather(x) for x in batch])
    torch.testing.assert_close(torch.vmap(comm.all_gather)(batch), expected)


def test_vmap_has_gradients(comm: weft.Communicator) -> None:
    x = torch.ones(4, 2, requires_grad=True)
    weft.backward(torch.vmap(lambda row: comm.all_reduce(row * row))(x).sum())
    torch.testing.assert_close(x.grad, torch.full((4, 2), 2.0 * comm.size))
