"""The pipeline of LayerParallel: micro-batches, state of modules, the loss in 1F1B order, errors."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from layer_parallel.networks import Block, Trap, plain_loop, same_gradients
from torch import Tensor, nn

import weft
from weft import LayerParallel, PerSample

EXACT = {"rtol": 1e-10, "atol": 1e-12}


def build(comm: weft.Communicator, layers: Any = None, **options: Any) -> LayerParallel:
    return LayerParallel(
        comm, layers or [Block(4) for _ in range(7)], **{"solver": "pipeline", "micro_batches": 3, **options}
    )


def start(rows: int = 7) -> Tensor:
    return torch.randn(rows, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(3)


# ---- micro-batches


class Rows(nn.Module):
    """Records the number of rows of each evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        self.seen.append(len(x))
        return torch.zeros_like(x)


@pytest.mark.parametrize(
    ("requested", "rows", "expected"),
    [(3, 7, [3, 2, 2]), (7, 7, [1] * 7), (1, 7, [7]), (None, 3, None), (None, 40, None)],
)
def test_rows_are_divided_evenly(
    comm: weft.Communicator, requested: int | None, rows: int, expected: list[int] | None
) -> None:
    layers = [Rows() for _ in range(5)]
    net = build(comm, layers, micro_batches=requested)
    with torch.no_grad():
        y = net(start(rows))
    assert y.shape == (rows, 4)
    count = 1 if comm.size == 1 else min(4 * comm.size, rows)
    for number in net.own:
        seen = layers[number].seen
        assert sum(seen) == rows and max(seen) - min(seen) <= 1
        assert seen == expected if expected else len(seen) == count


def test_statistics_count_this_ranks_work(comm: weft.Communicator) -> None:
    if comm.size == 1:
        return  # a plain loop
    net = build(comm, replicated=True)
    weft.backward(net(start()).sum())
    for solve in net.statistics:
        assert (solve.iterations, solve.converged, solve.stalled) == (1, True, False)
        assert solve.steps == [3 * len(net.own)]
        assert solve.residuals == []


def test_kept_states_are_those_of_the_whole_batch(comm: weft.Communicator) -> None:
    net = build(comm, keep_states=True)
    with torch.no_grad():
        net(start())
        net(start())
    serial = plain_loop([net.layers[str(n)] for n in net.own], ["residual"] * len(net.own), len(net.own) / 7, start())
    for point, state in net.states():
        assert state.shape == (7, 4)
        assert point == 0 or point - 1 in net.own
        if comm.size == 1 and point == 7:
            torch.testing.assert_close(state, serial[2], **EXACT)
    assert len(net.states()) == len(net.own) + (comm.rank == 0)


class Masked(Block):
    def forward(self, x: Tensor, mask: Tensor, scale: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x) * mask * scale


@pytest.mark.parametrize("solver", ["pipeline", "mgrit"])
def test_arguments_with_a_row_per_sample_are_divided(comm: weft.Communicator, solver: str) -> None:
    layers = [Masked(4) for _ in range(5)]
    net = build(comm, layers, solver=solver, levels=1)
    mask = torch.rand(7, 1, dtype=torch.float64, requires_grad=True)
    scale = torch.rand(4, dtype=torch.float64)
    y = net(start(), PerSample(mask), scale)
    weft.backward(net.compose(torch.sum, y))
    other = mask.detach().requires_grad_()
    _, _, expected = plain_loop(layers, ["residual"] * 5, 1.0, start(), other, scale)
    expected.sum().backward()
    if comm.rank == 0:
        torch.testing.assert_close(y, expected, **EXACT)
    part = torch.zeros_like(mask) if mask.grad is None else mask.grad
    with torch.no_grad():
        torch.testing.assert_close(comm.all_reduce(part), other.grad, **EXACT)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64])
def test_types_are_preserved(comm: weft.Communicator, dtype: torch.dtype) -> None:
    layers = [nn.Linear(4, 4, dtype=dtype) for _ in range(4)]
    net = build(comm, layers)
    x = start().to(dtype).requires_grad_()
    y = net(x)
    weft.backward(net.compose(lambda y: y.abs().sum(), y))
    copies, leaf, expected = plain_loop(layers, ["residual"] * 4, 1.0, x.detach())
    expected.abs().sum().backward()
    assert y.dtype == dtype
    tolerance = {"rtol": 0.05, "atol": 0.05} if dtype.itemsize == 2 else {"rtol": 1e-4, "atol": 1e-4}
    if comm.rank == 0:
        torch.testing.assert_close(y, expected, **tolerance)
        torch.testing.assert_close(x.grad, leaf.grad, **tolerance)
    for number in net.own:
        same_gradients(net.layers[str(number)], copies[number], **tolerance)


def test_more_ranks_than_layers(comm: weft.Communicator) -> None:
    layers = [Block(4)]
    net = build(comm, layers)
    weft.backward(net.loss(torch.sum, start(), reduction="sum"))
    weft.backward(net.compose(torch.sum, net(start())))
    copies, _, expected = plain_loop(layers, ["residual"], 1.0, start())
    (2 * expected.sum()).backward()
    for number in net.own:
        same_gradients(net.layers[str(number)], copies[number], **EXACT)


def test_two_backward_passes_through_one_graph(comm: weft.Communicator) -> None:
    net = build(comm, replicated=True)
    y = net(start())
    for _ in range(2):
        weft.backward(y.sum(), retain_graph=True)
    once = build(comm, [copy.deepcopy(net.layers[str(n)]) if n in net.own else Block(4) for n in range(7)])
    once.zero_grad()
    weft.backward(once.compose(torch.sum, once(start())))
    for mine, other in zip(net.parameters(), once.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, 2 * other.grad, **EXACT)


def test_gradients_that_are_expanded_views(comm: weft.Communicator) -> None:
    layers = [Block(4) for _ in range(5)]
    net = build(comm, layers, replicated=True)
    y = net(start())
    y.backward(torch.ones((), dtype=torch.float64).expand(7, 4))
    copies, _, expected = plain_loop(layers, ["residual"] * 5, 1.0, start())
    expected.sum().backward()
    for number in net.own:
        same_gradients(net.layers[str(number)], copies[number], **EXACT)


# ---- state of modules


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4).double()
        self.linear = nn.Linear(4, 4).double()

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(self.norm(x)))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("direct", [False, True])
def test_batch_norm_uses_the_statistics_of_each_micro_batch(
    comm: weft.Communicator, shared: bool, direct: bool
) -> None:
    layers: list[nn.Module] = [Normalised()] * 4 if shared else [Normalised() for _ in range(4)]
    reference = copy.deepcopy(nn.ModuleList(layers))
    net = build(comm, layers)
    x = start(8)
    if direct:
        weft.backward(net.loss(torch.sum, x, reduction="sum"))
    else:
        weft.backward(net.compose(torch.sum, net(x)))
    for rows in (slice(0, 3), slice(3, 6), slice(6, 8)):
        y = x[rows]
        for layer in reference:
            y = y + 0.25 * layer(y)
        y.sum().backward()
    for number in net.own:
        mine, expected = net.layers[str(number)], reference[number]
        same_gradients(mine, expected, **EXACT)
        for name, buffer in mine.named_buffers():
            torch.testing.assert_close(buffer, expected.get_buffer(name), **EXACT)


def test_dropout_masks_differ_between_micro_batches_but_not_between_splits(comm: weft.Communicator) -> None:
    alone = comm.split(comm.rank)
    outputs = []
    for ranks in (comm, alone):
        net = build(ranks, [nn.Dropout(0.5) for _ in range(3)], form="plain")
        torch.manual_seed(11)
        with torch.no_grad():
            first, second = (net(torch.ones(6, 40)) for _ in range(2))
        outputs.append((first, second))
    if comm.rank > 0:
        return
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=0)
    first, second = outputs[0]
    assert not torch.equal(first, second)
    assert not torch.equal(first[:2], first[2:4])


def test_hooks_of_parameters_run_once(comm: weft.Communicator) -> None:
    for direct in (False, True):
        net = build(comm)
        calls: list[Tensor] = []
        parameters = list(net.parameters())
        for parameter in parameters:
            parameter.register_hook(calls.append)
        loss = net.loss(torch.sum, start(), reduction="sum") if direct else net.compose(torch.sum, net(start()))
        weft.backward(loss)
        assert len(calls) == len(parameters)


# ---- the loss in 1F1B order


@pytest.mark.parametrize("solver", ["pipeline", "mgrit"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_loss_trains_opening_network_and_closing(comm: weft.Communicator, reduction: str, solver: str) -> None:
    opening, closing = nn.Linear(4, 4).double(), nn.Linear(4, 2).double()
    layers = [Block(4) for _ in range(7)]
    target = torch.randn(7, 2, dtype=torch.float64)

    def loss_of(y: Tensor, target: Tensor) -> Tensor:
        return nn.functional.mse_loss(closing(y), target, reduction=reduction)

    net = build(comm, layers, solver=solver, levels=1)
    loss = net.loss(loss_of, net.compose(opening, start()), target, reduction=reduction)
    weft.backward(loss * 3)
    ends = copy.deepcopy((opening, closing))
    for end in ends:
        end.zero_grad()
    _, x, _ = plain_loop(layers, ["residual"] * 7, 1.0, start())
    copies, _, y = plain_loop(layers, ["residual"] * 7, 1.0, ends[0](x.detach()), detach=False)
    expected = nn.functional.mse_loss(ends[1](y), target, reduction=reduction)
    (expected * 3).backward()
    for number in net.own:
        same_gradients(net.layers[str(number)], copies[number], **EXACT)
    if comm.rank == 0:
        torch.testing.assert_close(loss, expected, **EXACT)
        for mine, other in zip((opening, closing), ends, strict=True):
            same_gradients(mine, other, **EXACT)


def test_the_loss_without_gradients(comm: weft.Communicator) -> None:
    layers = [Block(4) for _ in range(7)]
    net = build(comm, layers)
    with torch.no_grad():
        loss = net.loss(torch.mean, start())
        expected = net.compose(torch.mean, net(start()))
    assert not loss.requires_grad
    torch.testing.assert_close(loss, expected, check_dtype=False)
    weft.backward(net.loss(torch.mean, start()))  # no message of the evaluation is left
    copies, _, y = plain_loop(layers, ["residual"] * 7, 1.0, start())
    y.mean().backward()
    for number in net.own:
        same_gradients(net.layers[str(number)], copies[number], **EXACT)


class Alive(torch.autograd.Function):
    """Counts the graphs of a layer that wait for backward."""

    now = most = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        Alive.now += 1
        Alive.most = max(Alive.most, Alive.now)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        Alive.now -= 1
        return gradient


class Counted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Alive.apply(x)


def test_the_loss_keeps_the_graphs_of_few_micro_batches(comm: weft.Communicator) -> None:
    net = build(comm, [Counted() for _ in range(comm.size)], micro_batches=12)
    Alive.now = Alive.most = 0
    weft.backward(net.loss(torch.mean, start(12).requires_grad_()))
    assert (Alive.now, Alive.most) == (0, comm.size - comm.rank + 1)
    Alive.now = Alive.most = 0
    weft.backward(net.compose(torch.mean, net(start(12).requires_grad_())))
    assert (Alive.now, Alive.most) == (0, 12)


# ---- errors


@pytest.mark.usefixtures("works_afterwards")
def test_more_micro_batches_than_samples(comm: weft.Communicator) -> None:
    net = build(comm, micro_batches=5)
    expected = ValueError if comm.size == 1 else weft.Disagreement
    for run in (net, lambda x: net.loss(torch.mean, x)):
        with pytest.raises((expected, weft.Disagreement), match="5 micro-batches of 3 samples; pass a smaller"):
            run(start(3))
        weft.reset_tape()
        weft.backward(net.compose(torch.sum, net(start(5))))


@pytest.mark.usefixtures("works_afterwards")
@pytest.mark.parametrize(
    "x",
    [torch.ones(()), (torch.ones(4, 2), torch.ones(3, 2))],
    ids=["scalar", "different rows"],
)
def test_inputs_without_rows(comm: weft.Communicator, x: Any) -> None:
    net = build(comm, [nn.Identity() for _ in range(3)], micro_batches=None)
    with pytest.raises((ValueError, weft.Disagreement), match="need the same number of rows"):
        net(x)
    net(torch.ones(3, 2))


@pytest.mark.usefixtures("works_afterwards")
def test_outputs_without_rows(comm: weft.Communicator) -> None:
    class Mixed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sum(0, keepdim=True)

    net = build(comm, [nn.Identity(), Mixed()], form="plain")
    with pytest.raises(RuntimeError, match=r"keep the samples in the first dimension.*mgrit"):
        net(start())


@pytest.mark.usefixtures("works_afterwards")
@pytest.mark.parametrize("options", [{"solver": "magic"}, {"micro_batches": 0}, {"micro_batches": 1.5}], ids=str)
def test_invalid_options(comm: weft.Communicator, options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match=r"expected (solver|micro_batches) to be"):
        build(comm, **options)


@pytest.mark.usefixtures("works_afterwards")
def test_per_sample_arguments_of_another_length(comm: weft.Communicator) -> None:
    net = build(comm, [Masked(4) for _ in range(3)])
    with pytest.raises((ValueError, weft.LayerError), match=r"the shape \(9, 1\), but the batch has 7 samples"):
        net(start(), PerSample(torch.ones(9, 1)), torch.ones(4))
    net(start(), PerSample(torch.ones(7, 1)), torch.ones(4))


class Fragile(Block):
    raises: type[BaseException] | None = None
    trapped = False
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.raises is not None and self.calls == 2:
            raise self.raises("no luck today")
        return super().forward(Trap.apply(x) if self.trapped else x)


@pytest.mark.usefixtures("works_afterwards")
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("culprit", [0, 3, 6])
def test_a_failing_layer(
    comm: weft.Communicator, culprit: int, where: str, kind: type[BaseException], direct: bool
) -> None:
    if comm.size == 1 and not direct:
        return  # a plain loop raises the exception itself
    layers = [Fragile(4) for _ in range(7)]
    net = build(comm, layers)
    mine = culprit in net.own
    if where == "forward":
        layers[culprit].raises = kind
    else:
        layers[culprit].trapped = True
        Trap.armed = kind

    def train() -> None:
        loss = net.loss(torch.mean, start()) if direct else net.compose(torch.mean, net(start()))
        weft.backward(loss)

    expected = kind if mine and kind is KeyboardInterrupt else weft.LayerError
    try:
        with pytest.raises(expected) as caught:
            train()
    finally:
        Trap.armed = None
    if expected is weft.LayerError:
        batch = 1 if where == "forward" else 0
        assert f"micro-batch {batch}: layer {culprit} (Fragile)" in str(caught.value)
        assert (type(caught.value.__cause__) is kind) == mine
    layers[culprit].raises = None
    weft.reset_tape()
    train()


@pytest.mark.usefixtures("works_afterwards")
def test_a_failing_loss(comm: weft.Communicator) -> None:
    net = build(comm)

    def fail(y: Tensor) -> Tensor:
        raise ZeroDivisionError("no loss today")

    with pytest.raises(weft.LayerError, match=r"the loss failed on rank 0, micro-batch 0.*no loss today"):
        net.loss(fail, start())
    with pytest.raises(weft.LayerError, match="the loss to be a scalar"):
        net.loss(lambda y: y, start())
    with pytest.raises(weft.LayerError, match=r"a target has the shape \(2,\), but the batch has 7 samples"):
        net.loss(lambda y, t: y.sum(), start(), torch.ones(2))
    weft.backward(net.loss(torch.mean, start()))
