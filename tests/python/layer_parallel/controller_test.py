"""IterationController: measured bias, decisions, undisturbed state, errors."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from layer_parallel.networks import Block, Trap, plain_loop
from torch import Tensor, nn

import weft
from weft import IterationController, LayerParallel, Solve

ONE = Solve(iterations=1, relaxations=0, residual=False)
EXACT = {"rtol": 1e-9, "atol": 1e-11}


class Strong(Block):
    """Large weights: coarse steps describe the network badly."""

    def __init__(self, width: int, std: float = 1.5) -> None:
        super().__init__(width)
        nn.init.normal_(self.linear.weight, std=std)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(3)


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*did not converge.*")
        yield


def build(comm: weft.Communicator, control: IterationController | None, layers: Any = None, **options: Any) -> Any:
    layers = layers or [Strong(4) for _ in range(16)]
    solves: dict[str, Any] = {"tf": 4.0, "levels": 2, "cfactor": 4, "forward": ONE, "backward": ONE}
    return LayerParallel(comm, layers, control=control, **{**solves, **options})


def data(rows: int = 6, width: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    x, target = (torch.randn(rows, width, dtype=torch.float64, generator=generator) for _ in range(2))
    return x, target


def step(net: Any, optimizer: torch.optim.Optimizer, x: Tensor, target: Tensor) -> float:
    optimizer.zero_grad()
    loss = net.loss(nn.functional.mse_loss, x, target)
    weft.backward(loss)
    optimizer.step()
    return float(loss.detach())


# ---- the measurement


def gradient_of(net: Any) -> Tensor:
    """The gradients of this rank's layers."""
    return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None] or [torch.zeros(0).double()])


def test_bias_and_cosine_are_those_of_the_whole_gradient(comm: weft.Communicator) -> None:
    layers = [Strong(4) for _ in range(16)]
    x, target = data()
    copies, _, y = plain_loop(layers, ["residual"] * 16, 4.0, x)
    nn.functional.mse_loss(y, target).backward()
    exact = torch.cat([p.grad.flatten() for layer in copies for p in layer.parameters()])  # type: ignore[union-attr]
    plain = build(comm, None, copy.deepcopy(layers))
    weft.backward(plain.loss(nn.functional.mse_loss, x, target))
    pieces = weft._objects.all_gather(comm, gradient_of(plain))
    used = torch.cat(pieces)

    control = IterationController("report", bound=1e9)
    net = build(comm, control, layers)
    weft.backward(net.loss(nn.functional.mse_loss, x, target))
    (record,) = control.log
    assert record.bias == pytest.approx(float((used - exact).norm() / exact.norm()), rel=1e-6)
    assert record.cosine == pytest.approx(float(used @ exact / used.norm() / exact.norm()), rel=1e-6)
    assert record.gradient_norm == pytest.approx(float(exact.norm()), rel=1e-9)
    assert control.gradient_bias() == record.bias and control.cosine() == record.cosine
    torch.testing.assert_close(gradient_of(net), gradient_of(plain), **EXACT)


def test_adapt_uses_the_exact_gradient_in_compared_batches(comm: weft.Communicator) -> None:
    layers = [Strong(4) for _ in range(16)]
    closing = nn.Linear(4, 2).double()
    x, target = data()
    copies, leaf, y = plain_loop(layers, ["residual"] * 16, 4.0, x)
    last = copy.deepcopy(closing)
    nn.functional.mse_loss(last(y), target[:, :2]).backward()
    control = IterationController("adapt")
    net = build(comm, control, layers)
    start = x.clone().requires_grad_()
    weft.backward(net.loss(lambda y, t: nn.functional.mse_loss(closing(y), t), start, target[:, :2]))
    assert control.log[0].bias > 0.1 and control.log[0].gradient == "exact"
    for number in net.own:
        for mine, other in zip(net.layers[str(number)].parameters(), copies[number].parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad, **EXACT)
    if comm.rank == 0:
        torch.testing.assert_close(start.grad, leaf.grad, **EXACT)
        torch.testing.assert_close(closing.weight.grad, last.weight.grad, **EXACT)


def test_adapt_replaces_the_warning_about_convergence(comm: weft.Communicator) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net = build(comm, IterationController("adapt", every=2))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(3):
            step(net, optimizer, *data())
    assert net.control.log[0].bias > 0.1


def test_gradients_accumulate_and_scale(comm: weft.Communicator) -> None:
    x, target = data()
    net = build(comm, IterationController("adapt", every=1))
    weft.backward(net.loss(nn.functional.mse_loss, x, target))
    once = gradient_of(net)
    weft.backward(2 * net.loss(nn.functional.mse_loss, x, target))
    torch.testing.assert_close(gradient_of(net), 3 * once, **EXACT)


# ---- the decisions


class NoiseCell(nn.Module):
    """A step of torchbraid's implicit GRU; step k reads the k-th input."""

    def __init__(self, number: int, cell: nn.GRUCell, dt: float) -> None:
        super().__init__()
        self.number, self.cell, self.dt = number, cell, dt

    def forward(self, h: Tensor, dt: float, series: Tensor) -> Tensor:
        w, u = self.cell.weight_ih, self.cell.weight_hh
        size = h.shape[1]
        given = series[:, self.number] @ w.T + self.cell.bias_ih
        r, z = (torch.sigmoid(given[:, i : i + size] + h @ u[i : i + size].T) for i in (0, size))
        n = torch.tanh(given[:, 2 * size :] + r * (h @ u[2 * size :].T))
        gain = dt / self.dt * z
        return (h + gain * n) / (1 + gain)


def white_noise_net(comm: weft.Communicator, control: IterationController | None, steps: int = 32) -> Any:
    cell = nn.GRUCell(3, 8).double()
    dt = 1 / steps
    return build(
        comm,
        control,
        [NoiseCell(k, cell, dt) for k in range(steps)],
        form="step",
        tf=1.0,
        levels=3,
        forward=Solve(iterations=2, relaxations=0, residual=False, skip_downcycle=True),
        backward=Solve(iterations=1, relaxations=0, residual=False, skip_downcycle=True),
    )


def test_white_noise_is_reported_and_repaired(comm: weft.Communicator) -> None:
    """A coarse step reads one of several independent inputs, so few iterations give a wrong gradient."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(5, 32, 3, dtype=torch.float64, generator=generator)
    target = torch.randn(5, 8, dtype=torch.float64, generator=generator)
    h = torch.zeros(5, 8).double()

    report = IterationController("report", bound=0.1)
    net = white_noise_net(comm, report)
    with pytest.warns(UserWarning, match=r"the gradient of LayerParallel is wrong by \d+%"):
        weft.backward(net.loss(nn.functional.mse_loss, h, target, series=x))
    assert report.log[0].bias > 0.6
    reported = gradient_of(net)

    torch.manual_seed(3)
    adapt = IterationController("adapt", bound=0.1, every=2)
    net = white_noise_net(comm, adapt)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    exact = None
    for _ in range(8):
        optimizer.zero_grad()
        weft.backward(net.loss(nn.functional.mse_loss, h, target, series=x))
        exact = gradient_of(net) if exact is None else exact
        optimizer.step()
    assert exact is not None and (reported - exact).norm() > 0.6 * exact.norm()
    uncompared = adapt.log[-1].next
    assert uncompared == "exact" or adapt.log[-1].bias <= 0.1


def test_iterations_are_added_and_taken_back(comm: weft.Communicator) -> None:
    layers = [Strong(4, 0.4) for _ in range(16)]
    control = IterationController("adapt", bound=0.02, every=1)
    net = build(comm, control, layers, tf=2.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    x, target = data()
    for _ in range(6):
        step(net, optimizer, x, target)
    assert control.log[0].bias > 0.02
    added = net.solves
    assert added[0].iterations > 1 and added[1].iterations > 1 and control.log[-1].bias <= 0.02
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.01)  # nearly linear: every solve is accurate
    for _ in range(12):
        step(net, optimizer, x, target)
    assert net.solves == (ONE, ONE)


def test_exact_pipeline_near_a_minimum(comm: weft.Communicator) -> None:
    """The error of the output stays, but the gradient vanishes: only exact passes can approach the minimum."""
    x, noise = data(rows=3)
    target = x + 0.3 * noise

    def train(control: IterationController | None) -> float:
        torch.manual_seed(5)
        net = build(comm, control, [Strong(4, 0.5) for _ in range(16)], tf=2.0)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        for _ in range(100):
            step(net, optimizer, x, target)
        with torch.no_grad():
            serial = net.serial()
            loss = float(nn.functional.mse_loss(serial(x), target)) if serial else 0.0
        return weft._objects.all_gather(comm, loss)[0]

    control = IterationController("adapt", bound=0.2, every=5, more_iterations=1, more_relaxations=0)
    assert train(control) < 0.05 * train(None)
    assert control.exact
    assert control.log[0].bias < 0.5 < control.log[-1].bias  # the gradient has become small


def test_warm_starts_keep_working(comm: weft.Communicator) -> None:
    previous = Solve(iterations=2, guess="previous", relaxations=0)
    x, target = data()
    control = IterationController("report", bound=1e9, every=2)
    net, plain = (build(comm, c, [Strong(4, 0.6) for _ in range(16)], forward=previous) for c in (control, None))
    plain.load_state_dict(net.state_dict())
    for _ in range(5):
        mine, other = (n.loss(nn.functional.mse_loss, x, target) for n in (net, plain))
        weft.backward(mine + other)
        assert float(mine.detach()) == float(other.detach())
        assert net.statistics[0].residuals == plain.statistics[0].residuals


# ---- undisturbed state


class Noisy(nn.Module):
    """Dropout and batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.dropout = nn.Linear(4, 4).double(), nn.BatchNorm1d(4).double(), nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(self.dropout(self.norm(x))))


@pytest.mark.parametrize("shared", [False, True])
def test_report_leaves_training_unchanged(comm: weft.Communicator, shared: bool) -> None:
    def train(control: IterationController | None) -> tuple[list[float], dict[str, Tensor], Tensor, Any]:
        torch.manual_seed(11)
        layers = [Noisy()] * 8 if shared else [Noisy() for _ in range(8)]
        net = build(comm, control, layers, cfactor=2, tf=1.0)
        closing = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 4)).double()
        optimizer = torch.optim.SGD([*net.parameters(), *closing.parameters()], lr=0.1)
        losses = []
        for _ in range(5):
            x, target = torch.randn(2, 6, 4).double()
            optimizer.zero_grad()
            loss = net.loss(lambda y, t: nn.functional.mse_loss(closing(y), t), x, target)
            weft.backward(loss)
            optimizer.step()
            losses.append(float(loss.detach()))
        return losses, net.full_state_dict(), torch.get_rng_state(), closing.state_dict()

    plain = train(None)
    reported = train(IterationController("report", bound=1e9, every=2))
    assert plain[0] == reported[0]
    torch.testing.assert_close(reported[1], plain[1], rtol=0, atol=0)
    assert torch.equal(plain[2], reported[2])
    torch.testing.assert_close(reported[3], plain[3], rtol=0, atol=0)


def test_adapt_leaves_the_state_of_the_exact_pass(comm: weft.Communicator) -> None:
    """With a bound that is never kept, training is that of the plain loop: the same masks and statistics."""
    torch.manual_seed(11)
    layers = [Noisy() for _ in range(8)]
    net = build(comm, IterationController("adapt", bound=1e-12, every=1), copy.deepcopy(layers), tf=2.0)
    plain = LayerParallel(comm, copy.deepcopy(layers), tf=2.0, levels=1)
    optimizers = [torch.optim.SGD(n.parameters(), lr=0.1) for n in (net, plain)]
    for _ in range(4):
        x, target = torch.randn(2, 6, 4).double()
        state = torch.get_rng_state()
        mine = step(net, optimizers[0], x, target)
        after = torch.get_rng_state()
        torch.set_rng_state(state)
        assert mine == pytest.approx(step(plain, optimizers[1], x, target), rel=1e-9)
        assert torch.equal(after, torch.get_rng_state())
    torch.testing.assert_close(net.state_dict(), plain.state_dict(), rtol=1e-8, atol=1e-10)


def test_random_numbers_of_the_loss_are_equal_in_both_passes(comm: weft.Communicator) -> None:
    control = IterationController("report", every=1)
    net = build(comm, control, [Strong(4, 0.1) for _ in range(8)], forward=Solve(), backward=Solve())
    weft.backward(net.loss(lambda y, t: nn.functional.mse_loss(nn.functional.dropout(y), t), *data()))
    assert control.log[0].bias < 1e-6


# ---- interface


def test_log_is_printable_and_can_be_written(comm: weft.Communicator, tmp_path: Path) -> None:
    control = IterationController("adapt", every=2)
    net = build(comm, control)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(4):
        step(net, optimizer, *data())
    lines = str(control).splitlines()
    assert "bias" in lines[0] and len(lines) == 1 + len(control.log)
    control.write_csv(tmp_path / "log.csv")
    assert len((tmp_path / "log.csv").read_text().splitlines()) == len(lines)
    control.write_json(tmp_path / "log.json")
    assert [record["batch"] for record in json.loads((tmp_path / "log.json").read_text())] == [
        record.batch for record in control.log
    ]
    logs = weft._objects.all_gather(comm, control.log)
    assert all(log == logs[0] for log in logs)


@pytest.mark.parametrize("options", [{"solver": "pipeline"}, {"levels": 1}, {"mode": "off"}])
def test_nothing_to_control(comm: weft.Communicator, options: dict[str, Any]) -> None:
    control = IterationController(options.pop("mode", "adapt"))
    net = build(comm, control, **options)
    weft.backward(net.loss(nn.functional.mse_loss, *data()))
    assert control.log == [] and control.gradient_bias() is None and control.cosine() is None


def test_forward_with_gradients_is_rejected(comm: weft.Communicator) -> None:
    net = build(comm, IterationController())
    with pytest.raises(RuntimeError, match="cannot see the loss"):
        net(data()[0])
    with torch.no_grad():
        net(data()[0])
        net.loss(nn.functional.mse_loss, *data())
    assert net.control.log == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "auto"}, "mode"),
        ({"bound": 0.0}, "bound"),
        ({"every": 0}, "every"),
        ({"more_iterations": -1}, "more_iterations"),
    ],
)
def test_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        IterationController(**options)


def test_invalid_controllers(comm: weft.Communicator) -> None:
    with pytest.raises(TypeError, match="IterationController"):
        build(comm, "adapt")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="replicated"):
        build(comm, IterationController(), replicated=True)


# ---- failures


class Failing(Block):
    """Fails in a given evaluation with graphs, counted from the time at which it is armed."""

    calls = 0
    fails_at = -1

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            Failing.calls += 1
            if Failing.calls == Failing.fails_at:
                raise ValueError("broken layer")
        return super().forward(Trap.apply(x))


@pytest.mark.parametrize("failing_pass", [1, 2])
def test_failures_reach_all_ranks(comm: weft.Communicator, failing_pass: int) -> None:
    """The last layer fails in the multigrid pass or in the exact pass."""
    layers = [*(Strong(4) for _ in range(11)), Failing(4)]
    control = IterationController("adapt", every=1)
    net = build(comm, control, layers)
    x, target = data()
    Failing.calls, Failing.fails_at = 0, failing_pass
    before = {k: v.clone() for k, v in net.state_dict().items()}
    with pytest.raises(weft.LayerError, match="broken layer"):
        net.loss(nn.functional.mse_loss, x, target)
    Failing.fails_at = -1
    assert control.log == []
    torch.testing.assert_close(net.state_dict(), before, rtol=0, atol=0)
    weft.backward(net.loss(nn.functional.mse_loss, x, target))
    assert len(control.log) == 1


def test_failures_of_backward_reach_all_ranks(comm: weft.Communicator) -> None:
    net = build(comm, IterationController(), [*(Strong(4) for _ in range(11)), Failing(4)])
    Trap.armed = ValueError
    try:
        with pytest.raises(weft.LayerError, match="no gradient today"):
            net.loss(nn.functional.mse_loss, *data())
    finally:
        Trap.armed = None
    weft.backward(net.loss(nn.functional.mse_loss, *data()))


@pytest.mark.parametrize("failing_call", [1, 2])
def test_failures_of_the_loss_reach_all_ranks(comm: weft.Communicator, failing_call: int) -> None:
    net = build(comm, IterationController())
    calls = 0

    def loss(y: Tensor, target: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == failing_call:
            raise ValueError("broken loss")
        return nn.functional.mse_loss(y, target)

    with pytest.raises(weft.LayerError, match="broken loss"):
        net.loss(loss, *data())
    weft.backward(net.loss(loss, *data()))
