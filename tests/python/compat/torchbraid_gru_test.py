"""The drop-in torchbraid: recurrent networks against a loop over all steps."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torchbraid
from compat.torchbraid_networks import RANK, SIZE, comm
from torch import Tensor, nn

FEATURES, HIDDEN, LAYERS, BATCH, STEPS = 3, 4, 2, 5, 6  # steps per rank


class Gru(nn.Module):
    """An implicit GRU with two layers, as in torchbraid's example."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.from_input = nn.ModuleList(nn.Linear(n, 3 * HIDDEN) for n in (FEATURES, HIDDEN))
        self.from_state = nn.ModuleList(nn.Linear(HIDDEN, 3 * HIDDEN) for _ in range(LAYERS))
        self.double()
        self.times: list[tuple[int, float, float]] = []

    def step(self, layer: int, dt: float, x: Tensor, h: Tensor) -> Tensor:
        xr, xz, xn = x.chunk(3, 1)
        hr, hz, hn = self.from_state[layer](h).chunk(3, 1)
        n = torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
        step = dt * (1 - torch.sigmoid(xz + hz))
        return (h + step * n) / (1 + step)

    def forward(self, level: int, tstart: float, tstop: float, x: Tensor, h: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return self.run(level, tstart, tstop, self.from_input[0](x), h)

    def run(self, level: int, tstart: float, tstop: float, x: Tensor, h: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        self.times.append((level, tstart, tstop))
        first = self.step(0, tstop - tstart, x, h[0][0])
        second = self.step(1, tstop - tstart, self.from_input[1](first), h[0][1])
        return (torch.stack((first, second)),)


class FastGru(Gru):
    """The same cell, whose products with the input are computed for all steps at once."""

    def reduceX(self, x: Tensor) -> tuple[Tensor]:
        return (self.from_input[0](x),)

    def fastForward(
        self, level: int, tstart: float, tstop: float, x: tuple[Tensor], h: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        return self.run(level, tstart, tstop, x[0], h)


class Lstm(nn.Module):
    """A cell whose state is a tuple."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.cell = nn.LSTMCell(FEATURES, HIDDEN).double()

    def forward(self, level: int, tstart: float, tstop: float, x: Tensor, h: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(part.unsqueeze(0) for part in self.cell(x, (h[0][0], h[1][0])))


def make(cell: nn.Module, layers: int = LAYERS, levels: int = 1, iterations: int = 1) -> torchbraid.GRU_Parallel:
    tf = float(STEPS * SIZE)
    m = torchbraid.GRU_Parallel(comm, cell, STEPS, HIDDEN, layers, tf, levels, levels, iterations)
    m.setNumRelax(1)
    return m


def sequence() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(BATCH, STEPS * SIZE, FEATURES, generator=generator, dtype=torch.double)


def piece(x: Tensor) -> Tensor:
    return x[:, RANK * STEPS : (RANK + 1) * STEPS]


@pytest.mark.parametrize("cell", [Gru, FastGru])
@pytest.mark.parametrize(("levels", "iterations"), [(1, 1), (2, 20), (3, 20)])
def test_matches_a_loop(cell: type[Gru], levels: int, iterations: int) -> None:
    parallel = make(cell(), levels=levels, iterations=iterations)
    serial = torchbraid.GRU_Serial(copy.deepcopy(parallel.GRU_models), LAYERS, HIDDEN)
    x = sequence()
    h = torch.full((LAYERS, BATCH, HIDDEN), 0.3, dtype=torch.double, requires_grad=True)
    h_serial = h.detach().clone().requires_grad_()
    weights = torch.linspace(-1, 1, LAYERS * BATCH * HIDDEN, dtype=torch.double).view_as(h)
    expected = serial(x, h_serial)
    (expected * weights).sum().backward()
    found = parallel(piece(x), h)
    (found * weights).sum().backward()
    assert torch.allclose(found, expected, atol=1e-10)
    for name, parameter in parallel.GRU_models.named_parameters():
        want = serial.GRU_model.get_parameter(name).grad
        assert torch.allclose(parameter.grad, want, atol=1e-9), name
    if RANK == 0:
        assert torch.allclose(h.grad, h_serial.grad, atol=1e-9)


def test_only_the_gradient_of_rank_0_counts() -> None:
    gradients = []
    for scale in (1.0, 1.0 if RANK == 0 else 7.0):
        m = make(Gru())
        (scale * m(piece(sequence())).sum()).backward()
        gradients.append([p.grad for p in m.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_state_may_be_a_tuple() -> None:
    parallel = make(Lstm(), layers=1)
    serial = torchbraid.RNN_Serial(copy.deepcopy(parallel.GRU_models), 1, HIDDEN)
    x = sequence()
    start = tuple(torch.zeros(1, BATCH, HIDDEN, dtype=torch.double) for _ in range(2))
    expected = serial(x, start)
    found = parallel(piece(x), start)
    (expected[0].sum() + 2 * expected[1].sum()).backward()
    (found[0].sum() + 2 * found[1].sum()).backward()
    for a, b in zip(
        (*found, *(p.grad for p in parallel.parameters())),
        (*expected, *(p.grad for p in serial.parameters())),
        strict=True,
    ):
        assert torch.allclose(a, b, atol=1e-10)


def test_cells_get_their_level_and_times() -> None:
    cell = Gru()
    m = make(cell, levels=2, iterations=2)
    m.setCFactor(3)
    with torch.no_grad():
        m(piece(sequence()))
    lengths = {
        level: {round(stop - start, 9) for lv, start, stop in cell.times if lv == level} for level, *_ in cell.times
    }
    assert lengths[0] == {1.0} and lengths.get(1, {3.0}) == {3.0}
    starts = {start for level, start, _ in cell.times if level == 0}
    assert starts == {float(step) for step in range(RANK * STEPS, (RANK + 1) * STEPS)}


def test_settings_and_statistics() -> None:
    m = make(FastGru(), levels=2, iterations=3)
    m.setFwdAbsTol(1e-30)
    m.setBwdAbsTol(1e-30)
    m.fwd_app.setTimerFile("unused")
    with pytest.raises(RuntimeError, match="before the first forward pass"):
        m.getFwdStats()
    m(piece(sequence())).sum().backward()
    assert m.getFwdStats()[0] == 3 and m.getBwdStats()[0] == 3
    assert m.getFastForwardInfo()[1] == 1
    assert "GRU_Parallel::forward" in m.getTimersString()
    m.fwd_app.has_fastforward = False
    m(piece(sequence()))
    assert m.getFastForwardInfo() == (0.0, 0)


@pytest.mark.parametrize("levels", [1, 2])
def test_ranks_may_have_different_numbers_of_steps(levels: int) -> None:
    parallel = make(Gru(), levels=levels, iterations=20)
    x = sequence()[:, 1:]  # rank 0 has one step less than the others
    mine = x[:, max(0, RANK * STEPS - 1) : (RANK + 1) * STEPS - 1]
    dt = STEPS * SIZE / x.size(1)
    serial = torchbraid.GRU_Serial(copy.deepcopy(parallel.GRU_models), LAYERS, HIDDEN, dt)
    expected, found = serial(x), parallel(mine)
    expected.sum().backward()
    found.sum().backward()
    assert torch.allclose(found, expected, atol=1e-10)
    for a, b in zip(parallel.parameters(), serial.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad, atol=1e-9)


def test_wrong_number_of_dimensions_raises() -> None:
    with pytest.raises(ValueError, match=r"\[batch, steps, features\]"):
        make(Gru())(sequence()[0])


class TimeDependent(nn.Module):
    """A cell whose step depends on its time."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.lin = nn.Linear(HIDDEN + FEATURES, HIDDEN).double()

    def forward(self, level: int, tstart: float, tstop: float, x: Tensor, h: tuple[Tensor, ...]) -> tuple[Tensor]:
        change = torch.tanh(self.lin(torch.cat([x, h[0][0]], dim=1))) * math.cos(tstart)
        return ((h[0][0] + 0.1 * (tstop - tstart) * change).unsqueeze(0),)


def test_a_cell_may_depend_on_its_time() -> None:
    m = make(TimeDependent(), layers=1, levels=2, iterations=STEPS * SIZE)
    x = sequence()
    for _ in range(2):  # the second pass may join steps
        m.zero_grad()
        found = m(piece(x))
        found.sum().backward()
        cell = TimeDependent()
        state = torch.zeros(1, BATCH, HIDDEN, dtype=torch.double)
        for step in range(STEPS * SIZE):
            (state,) = cell(0, float(step), step + 1.0, x[:, step], (state,))
        state.sum().backward()
        assert torch.allclose(found, state, atol=1e-9)
        for a, b in zip(m.parameters(), cell.parameters(), strict=True):
            assert torch.allclose(a.grad, b.grad, atol=1e-9)


def test_steps_are_joined_after_the_first_pass() -> None:
    def passes(*inputs: Tensor) -> tuple[int, Tensor]:
        """Returns the number of calls of the cell, and the result, of the last pass."""
        cell = Gru()
        m = make(cell, levels=2, iterations=STEPS * SIZE)  # converged, since a pass starts from the states of the last
        m.setCFactor(2)
        for x in inputs:
            cell.times.clear()
            with torch.no_grad():
                found = m(piece(x))
        return len(cell.times), found

    x, other = sequence(), -2 * sequence()
    single_calls, expected = passes(other)
    joined_calls, found = passes(x, other)
    assert joined_calls < 0.75 * single_calls
    assert torch.allclose(found, expected)
