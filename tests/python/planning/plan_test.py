"""weft.plan: limits of the model, memory, choices, errors."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.planning.layer_costs import LayerCost, NetworkCost, measure_layers
from weft.planning.layers import multigrid_memory, pipeline_memory
from weft.planning.plan import mean_square
from weft.planning.recurrent import PassTimes, newton_tasks, pipeline_tasks

import weft
from weft import Machine, Solve, _bindings
from weft.planning import Plan, PlanError, Prediction, plan

IDEAL = Machine(latency=0.0, bandwidth=math.inf, cores=4096)


class Step(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


def layers(count: int = 16, width: int = 8) -> list[nn.Module]:
    torch.manual_seed(0)
    return [Step(width) for _ in range(count)]


def predicted(ranks: int, solver: str, seconds: float, bias: float = 0.0) -> Prediction:
    return Prediction(ranks, solver, "", seconds, 100, bias)


# ---- the answer


def test_the_fastest_accurate_option_is_marked() -> None:
    options = [
        predicted(1, "serial", 10),
        predicted(2, "pipeline", 6),
        predicted(2, "mgrit", 3, bias=0.5),
        predicted(4, "pipeline", 4),
        predicted(4, "mgrit", 3.5, bias=0.05),
    ]
    result = Plan("a network", IDEAL, 0.1, options)
    assert result.best(2) == options[1]
    assert result.best() == options[4]
    assert "use mgrit" in result.answer() and "2.86 times" in result.answer()
    assert "use pipeline" in result.answer(2)
    marked = [line for line in str(result).splitlines() if line.endswith("*")]
    assert [line.split()[:2] for line in marked] == [["1", "serial"], ["2", "pipeline"], ["4", "mgrit"]]
    found = json.loads(result.to_json())
    assert [each["best"] for each in found["predictions"]] == [True, True, False, False, True]


def test_stay_serial() -> None:
    result = Plan("a network", IDEAL, 0.1, [predicted(1, "serial", 1), predicted(8, "pipeline", 1.5)])
    assert result.answer().startswith("stay serial") and result.answer(8).startswith("stay serial")


# ---- predictions


def test_small_network_stays_serial_on_a_slow_network() -> None:
    result = plan(layers(), torch.randn(4, 8), machine=Machine(0.01, 1e6, 1), ranks=[2, 8], repeats=1)
    assert result.answer().startswith("stay serial")
    assert {each.solver for each in result.predictions} == {"serial", "pipeline", "mgrit"}
    assert result.ranks == [1, 2, 8]


def test_an_ideal_machine_speeds_the_network_up() -> None:
    net = layers(64, 32)
    before = {name: value.clone() for name, value in nn.ModuleList(net).state_dict().items()}
    x = torch.randn(32, 32)
    state = torch.get_rng_state()
    result = plan(net, x, machine=IDEAL, ranks=[1, 4, 16], repeats=2)
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for layer in net for parameter in layer.parameters())
    torch.testing.assert_close(nn.ModuleList(net).state_dict(), before, rtol=0, atol=0)
    assert result.best(16).seconds < result.serial.seconds / 2
    grids = result.of("mgrit")
    assert [each.ranks for each in grids] == [1, 4, 16]
    assert grids[2].seconds < grids[1].seconds < grids[0].seconds
    for solver in ("pipeline", "mgrit"):
        memory = [each.memory for each in result.of(solver)]
        assert memory == sorted(memory, reverse=True)


def test_settings_of_a_layer_parallel_network_are_used(comm: weft.Communicator) -> None:
    alone = comm.split(comm.rank)
    net = weft.LayerParallel(
        alone, layers(), levels=2, cfactor={0: 2}, forward=Solve(iterations=3, residual=False), backward=Solve()
    )
    result = plan(net, torch.randn(4, 8), machine=IDEAL, ranks=[2], repeats=1)
    (found, _) = (result.of("mgrit") * 2)[:2]
    assert "2 levels" in found.setting and "3+" in found.setting


def test_layers_that_change_the_shape() -> None:
    """Multigrid cannot coarsen them; a note in the plan states the reason."""
    net = nn.Sequential(nn.Linear(4, 8), *(nn.Linear(8, 8) for _ in range(14)), nn.Linear(8, 2))
    result = plan(net, torch.randn(4, 4), machine=IDEAL, ranks=[2], form="plain", repeats=1)
    assert result.solvers == ["serial", "pipeline"]
    assert any("mgrit is not available" in note for note in result.notes)
    assert "mgrit is not available" in str(result)


def test_batch_normalisation_is_not_disturbed() -> None:
    norm = nn.BatchNorm1d(8)
    plan([*layers(7), norm], torch.randn(6, 8), machine=IDEAL, ranks=[2], form="plain", repeats=1)
    assert norm.num_batches_tracked is not None and int(norm.num_batches_tracked) == 0


def test_recurrent_networks() -> None:
    torch.manual_seed(0)
    result = plan(weft.GRU(3, 8), torch.randn(16, 4, 3), machine=IDEAL, ranks=[1, 4], repeats=1)
    assert set(result.solvers) == {"serial", "pipeline", "mgrit", "newton"}
    newton = result.of("newton")
    assert newton[1].seconds == pytest.approx(newton[0].seconds / 4)  # every evaluation is divided by the ranks
    assert newton[0].bias < 1e-3
    batch_first = plan(weft.GRU(3, 8, batch_first=True), torch.randn(4, 16, 3), machine=IDEAL, ranks=[4], repeats=1)
    assert {"serial", "pipeline"} <= set(batch_first.solvers)


# ---- the model, by hand


def cost(forward: float, backward: float, count: int, **bytes: int) -> NetworkCost:
    one = LayerCost(forward, forward, backward, backward, bytes.get("parameters", 10), bytes.get("graph", 1000))
    return NetworkCost([one] * count, 0.0, 0.0, 0.0, bytes.get("state", 100))


def replay(graph: list[Any], machine: Machine) -> float:
    return _bindings.load().plan_replay(graph, machine.describe())["seconds"]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("chunks", [1, 2, 8])
def test_recurrent_pipeline_has_the_efficiency_of_a_pipeline(ranks: int, chunks: int) -> None:
    graph = pipeline_tasks(PassTimes(1.0, 2.0), ranks, chunks, 8, 8)
    assert replay(graph, IDEAL) == pytest.approx(3.0 / ranks * (chunks + ranks - 1))


def test_newton_divides_its_evaluations() -> None:
    for ranks in (1, 4, 16):
        graph = newton_tasks(PassTimes(12.0, 6.0), (5, 2), ranks, 0, 0)
        assert replay(graph, IDEAL) == pytest.approx(18.0 / ranks)
        rounds = (ranks - 1).bit_length() * (6 + 3 + 1)  # one exchange per evaluation and one for the weights
        slow = replace(IDEAL, latency=0.5)
        assert replay(graph, slow) == pytest.approx(18.0 / ranks + 0.5 * rounds)


def test_memory_falls_with_the_ranks() -> None:
    for count in (1, 7, 64):
        costs = cost(1.0, 2.0, count)
        pipeline = [pipeline_memory(costs, ranks, 16) for ranks in (1, 2, 4, 8, 64, 128)]
        grids = [multigrid_memory(costs, ranks, 4) for ranks in (1, 2, 4, 8, 64, 128)]
        assert pipeline == sorted(pipeline, reverse=True) and grids == sorted(grids, reverse=True)
    assert pipeline_memory(cost(1.0, 2.0, 8), 1, 1) == 8 * (2 * 10 + 1000)
    assert pipeline_memory(cost(1.0, 2.0, 8), 2, 4) == 4 * (2 * 10 + 750)  # rank 0 holds 3 of 4 micro-batches


def test_costs_of_a_layer() -> None:
    net = [nn.Linear(64, 64, bias=False)]
    found = measure_layers(net, ["plain"], 1.0, torch.randn(10, 64), mean_square, 2)
    (layer,) = found.layers
    assert layer.parameter_bytes == 64 * 64 * 4 and found.state_bytes == 10 * 64 * 4
    assert layer.graph_bytes == 2 * 10 * 64 * 4  # the input and the output
    assert min(layer.forward, layer.recorded, layer.adjoint, layer.weighted) > 0
    assert found.training_seconds == pytest.approx(found.loss + layer.recorded + layer.weighted)
    assert found.scaled(2).training_seconds == pytest.approx(2 * found.training_seconds)


# ---- errors


class Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("this layer is broken")


@pytest.mark.parametrize(
    ("network", "x", "options", "message"),
    [
        ([nn.Linear(4, 4)], torch.randn(2, 5), {}, "failed with the input"),
        ([Broken()], torch.randn(2, 5), {}, "this layer is broken"),
        ([], torch.randn(2, 5), {}, "at least one layer"),
        ([1, 2], torch.randn(2, 5), {}, "torch.nn.Module"),
        (Step(), torch.randn(2, 8), {}, "no sequence of layers"),
        (3, torch.randn(2, 8), {}, "expected a network"),
        ([Step()], torch.randn(2, 8), {"bound": 0.0}, "bound"),
        ([Step()], torch.randn(2, 8), {"ranks": [0]}, "ranks"),
        (weft.GRU(3, 4), torch.randn(5, 3), {}, "steps x batch x features"),
        (weft.GRU(3, 4), torch.randn(5, 2, 4), {}, "failed with the input"),
    ],
)
def test_errors(network: Any, x: Tensor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan(network, x, machine=IDEAL, repeats=1, **options)
    # The next plan works.
    plan([Step(), Step()], torch.randn(2, 8), machine=IDEAL, ranks=[2], repeats=1)


@pytest.mark.parametrize("values", [(-1, 1e9, 2, None), (0, 0, 2, None), (0, 1e9, 0, None), (0, 1e9, 2, 0)])
def test_invalid_machines(values: Any) -> None:
    with pytest.raises(ValueError, match="at least"):
        Machine(*values)
