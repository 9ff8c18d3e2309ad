"""Errors of LayerParallel: invalid inputs and options, failing backward passes, interruptions, optimizers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from layer_parallel.networks import Block, Stepped, Trap
from torch import Tensor, nn

import weft
from weft import LayerParallel, Solve

pytestmark = [
    pytest.mark.usefixtures("works_afterwards"),
    pytest.mark.filterwarnings("ignore:weft. the .* solve of LayerParallel did not converge"),
]


def build(comm: weft.Communicator, layers: Any = None, **options: Any) -> LayerParallel:
    return LayerParallel(comm, layers or [Block(4) for _ in range(9)], **{"levels": 2, "cfactor": 2, **options})


def start() -> Tensor:
    return torch.ones(2, 4, dtype=torch.float64)


# ---- inputs


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("x", [torch.ones(2, 4).numpy(), 3, "text", [start(), 3]], ids=["numpy", "int", "str", "list"])
def test_an_input_that_is_no_state_raises_on_all_ranks(comm: weft.Communicator, x: Any, levels: int) -> None:
    net = build(comm, levels=levels)
    expected = TypeError if comm.size == 1 else weft.Disagreement
    with pytest.raises((expected, RuntimeError), match=r"tensor|[Uu]nable to cast"):
        net(x)
    net(start())


def test_other_ranks_may_pass_anything(comm: weft.Communicator) -> None:
    net = build(comm)
    y = net(start() if comm.rank == 0 else "ignored")
    assert y.shape == (2, 4)


# ---- optimizers


def test_lbfgs_is_rejected_on_several_ranks(comm: weft.Communicator) -> None:
    net = build(comm)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = net.compose(torch.sum, net(start()))
        weft.backward(loss)
        return loss

    if comm.size == 1:
        optimizer.step(closure)
        return
    with pytest.raises(RuntimeError, match=r"LBFGS .* different number of times"):
        optimizer.step(closure)
    serial = net.serial()
    if serial is not None:  # a copy on one rank may use it
        other = torch.optim.LBFGS(serial.parameters(), max_iter=2)
        other.step(lambda: (other.zero_grad(), loss := serial(start()).sum(), loss.backward())[1])


# ---- failures in backward


class Trapped(Block):
    trapped = False

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(Trap.apply(x) if self.trapped else x)


@pytest.fixture
def trap() -> Any:
    yield Trap
    Trap.armed = None


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("culprit", [0, 4, 8])
def test_a_failing_backward_names_the_layer_and_its_cause(
    comm: weft.Communicator, trap: type[Trap], levels: int, culprit: int
) -> None:
    if comm.size == 1 and levels == 1:
        return  # autograd raises the exception itself
    layers = [Trapped(4) for _ in range(9)]
    layers[culprit].trapped = True
    net = build(comm, layers, levels=levels)
    loss = net.compose(torch.sum, net(start()))
    trap.armed = ValueError
    owner = int(comm.all_reduce(torch.tensor(comm.rank if culprit in net.own else 0)).item())
    with pytest.raises(
        weft.LayerError, match=rf"rank {owner}, .*layer {culprit} \(Trapped\): .*no gradient today.*backward solve"
    ) as caught:
        weft.backward(loss)
    assert (type(caught.value.__cause__) is ValueError) == (culprit in net.own)
    if "level 0" in str(caught.value):
        assert f"step {culprit}:" in str(caught.value)
    trap.armed = None
    weft.reset_tape()
    weft.backward(net.compose(torch.sum, net(start())))


# ---- interruptions


class Interrupting(Block):
    raises: type[BaseException] | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.raises is not None:
            raise self.raises(3)
        return super().forward(x)


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("first_pass", [True, False])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interruptions_are_not_turned_into_layer_errors(
    comm: weft.Communicator, kind: type[BaseException], first_pass: bool, levels: int
) -> None:
    layers = [Interrupting(4) for _ in range(9)]
    net = build(comm, layers, levels=levels)
    if not first_pass:
        net(start())
    mine = 4 in net.own
    layers[4].raises = kind if mine else None
    with pytest.raises(kind if mine else weft.LayerError) as caught:
        net(start())
    if mine:
        assert caught.value.args == (3,)
    layers[4].raises = None
    net(start())


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interruptions_in_backward_reach_the_user(
    comm: weft.Communicator, trap: type[Trap], kind: type[BaseException]
) -> None:
    layers = [Trapped(4) for _ in range(9)]
    layers[4].trapped = True
    net = build(comm, layers)
    loss = net.compose(torch.sum, net(start()))
    trap.armed = kind
    with pytest.raises(kind if 4 in net.own else weft.LayerError):
        weft.backward(loss)


def test_the_first_pass_keeps_the_cause_of_a_failure(comm: weft.Communicator) -> None:
    layers = [Interrupting(4) for _ in range(9)]
    net = build(comm, layers)
    layers[4].raises = ZeroDivisionError if 4 in net.own else None
    with pytest.raises(weft.LayerError, match=r"layer 4 \(Interrupting\)") as caught:
        net(start())
    assert (type(caught.value.__cause__) is ZeroDivisionError) == (4 in net.own)


# ---- options


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"tf": float("nan")}, ValueError, "tf to be finite, got nan"),
        ({"tf": float("inf")}, ValueError, "tf to be finite, got inf"),
        ({"cfactor": {-1: 4}}, ValueError, "levels from 0"),
        ({"cfactor": {0: 1}}, ValueError, "level 0 to be at least 2, got 1"),
        ({"cfactor": 2.5}, TypeError, "an integer, got 2.5"),
        ({"levels": 2.0}, TypeError, "weft: expected levels to be an integer, got 2.0"),
        ({"backward_levels": 0}, ValueError, "levels to be at least 1"),
        ({"min_coarse": 0}, ValueError, "min_coarse to be at least 1"),
    ],
    ids=str,
)
def test_invalid_options_raise_the_same_error_on_all_ranks(
    comm: weft.Communicator, given: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        build(comm, **given)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"relaxations": -1}, ValueError),
        ({"relaxations": {0: -1}}, ValueError),
        ({"relaxations": {-1: 1}}, ValueError),
        ({"relaxations": 1.5}, TypeError),
        ({"iterations": 2.0}, TypeError),
        ({"c_weight": 2.0}, ValueError),
        ({"c_weight": {0: 0.0}}, ValueError),
        ({"tolerance": -1.0}, ValueError),
        ({"tolerance": float("nan")}, ValueError),
        ({"relative_tolerance": -1e-3}, ValueError),
    ],
    ids=str,
)
def test_invalid_solves_raise(given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=f"weft: expected {next(iter(given))}"):
        Solve(**given)


def test_invalid_options_of_one_rank_reach_all_ranks(comm: weft.Communicator) -> None:
    if comm.size == 1:
        return
    with pytest.raises(weft.Disagreement, match=r"rank 0: LayerParallel failed: .*levels to be at least 1, got 0"):
        build(comm, levels=0 if comm.rank == 0 else 2)


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        ({"form": "residual"}, {"form": "plain"}, r"residual x 9(?s:.*)plain x 9"),
        ({"cfactor": 2}, {"cfactor": 3}, r"coarsening factor 2(?s:.*)coarsening factor 3"),
        ({"cfactor": {0: 2}}, {"cfactor": {0: 3}}, r"level 0: 2(?s:.*)level 0: 3"),
        ({"tf": 1.0}, {"tf": 1.0 + 1e-9}, r"tf=1[,;](?s:.*)tf=1\.00000000"),
        ({"min_coarse": 2}, {"min_coarse": 5}, r"at least 2 coarse steps(?s:.*)at least 5 coarse steps"),
        ({"replicated": False}, {"replicated": True}, "replicated"),
    ],
    ids=str,
)
def test_networks_that_differ_are_described_differently(
    comm: weft.Communicator, one: dict[str, Any], other: dict[str, Any], text: str
) -> None:
    if comm.size == 1:
        return
    with pytest.raises(weft.Disagreement, match=text):
        build(comm, **(one if comm.rank == 0 else other))


def test_statistics_count_evaluations(comm: weft.Communicator) -> None:
    class Counted(Stepped):
        calls = 0

        def forward(self, x: Tensor, dt: float) -> Tensor:  # type: ignore[override]
            Counted.calls += 1
            return super().forward(x, dt)

    net = build(comm, [Counted(4) for _ in range(16)], levels=3, form="step", forward=Solve(iterations=3, tolerance=0))
    net(start())
    Counted.calls = 0
    net(start())
    assert sum(net.statistics[0].steps) == Counted.calls
    weft.reset_tape()


def test_clipping_returns_the_type_of_the_gradients(comm: weft.Communicator) -> None:
    parameter = nn.Parameter(torch.ones(3, dtype=torch.float64))
    parameter.grad = torch.full((3,), 1 / 3, dtype=torch.float64)
    norm = weft.clip_grad_norm_([parameter], 1.0, comm=comm)
    assert norm.dtype == torch.float64
    torch.testing.assert_close(norm, torch.tensor(comm.size / 3, dtype=torch.float64).sqrt(), rtol=1e-15, atol=0)
