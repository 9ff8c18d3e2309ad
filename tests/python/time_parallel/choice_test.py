"""solver="auto", outputs="last", and arguments that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import weft


def piece(rank: int, **options: Any) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(6 + rank, 4, 3, generator=generator, **options)


def test_auto_reports_its_choice(rank: int, size: int) -> None:
    torch.manual_seed(0)
    net = weft.GRU(3, 5, comm=weft.world())
    assert net.choice is None
    y, _ = net(piece(rank))
    weft.backward(y.sum())
    if size == 1:
        assert net.choice == "serial" and net.measurements == []
        return
    solvers = {measurement.choice.solver for measurement in net.measurements}
    assert solvers == {"serial", "pipeline", "newton", "mgrit"}
    best = min((m for m in net.measurements if m.error <= 1e-4), key=lambda m: m.seconds)
    assert (net.choice, net.chunks) == (best.choice.solver, best.choice.chunks)
    assert all(m.error == 0 or m.choice.solver != "serial" for m in net.measurements)


def test_auto_rejects_solvers_with_large_errors(rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("one process uses the serial solver")
    torch.manual_seed(0)
    net = weft.GRU(3, 5, comm=weft.world(), max_error=0, max_iterations=1)
    net(piece(rank))
    weft.reset_tape()
    assert net.choice in ("serial", "pipeline")
    errors = {measurement.choice.solver: measurement.error for measurement in net.measurements}
    assert errors["newton"] == float("inf")  # one iteration does not converge


def test_auto_for_cells_of_users(rank: int) -> None:
    torch.manual_seed(0)
    net = weft.TimeParallel(torch.nn.GRUCell(3, 4), comm=weft.world())
    y, h = net(piece(rank), torch.zeros(4, 4))
    weft.backward(y.sum())
    assert net.choice in ("serial", "pipeline", "newton", "mgrit")
    assert h.shape == (4, 4)


@pytest.mark.parametrize("solver", ["serial", "newton", "mgrit"])
def test_only_the_last_outputs(solver: str, rank: int) -> None:
    lengths = torch.tensor([5, 6, 1, 3])
    results = []
    for outputs in ("all", "last"):
        torch.manual_seed(1)
        net = weft.LSTM(
            3, 5, num_layers=2, dtype=torch.float64, comm=weft.world(), solver=solver, outputs=outputs,
            forward=weft.Solve(iterations=30, tolerance=1e-13, relative_tolerance=0),
            backward=weft.Solve(iterations=30, tolerance=1e-13, relative_tolerance=0),
        )  # fmt: skip
        y, (h, c) = net(piece(rank, dtype=torch.float64), lengths=lengths)
        last = y if outputs == "last" else h[-1]
        assert last.shape == (4, 5) and c.shape == (2, 4, 5)
        weft.backward(last.sum())
        results.append([last, *(weight.grad for weight in net.parameters())])
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-10)


def test_only_the_last_outputs_of_both_directions_and_of_a_cell(rank: int) -> None:
    net = weft.GRU(3, 2, bidirectional=True, comm=weft.world(), solver="serial", outputs="last")
    y, h = net(piece(rank))
    torch.testing.assert_close(y, torch.cat([h[0], h[1]], dim=1))
    cell = weft.TimeParallel(torch.nn.GRUCell(3, 4), comm=weft.world(), solver="serial", outputs="last")
    y, h = cell(piece(rank), torch.zeros(4, 4))
    torch.testing.assert_close(y, h)
    weft.reset_tape()


@pytest.mark.parametrize("solver", ["serial", "newton", "mgrit"])
@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([1, 2, 3, 10_000], r"the length of row 3 must be in \[0, \d+\], the steps of all ranks, got 10000"),
        ([1, -1, 3, 2], "the length of row 1 must be in"),
        ([1, 2], "expected 4 integer lengths, one per row"),
    ],
)
def test_lengths_that_contradict_the_pieces(solver: str, lengths: list[int], message: str, rank: int) -> None:
    net = weft.GRU(3, 4, comm=weft.world(), solver=solver)
    with pytest.raises(ValueError, match=message):
        net(piece(rank), lengths=torch.tensor(lengths))
    net(piece(rank), lengths=torch.tensor([1, 2, 3, 6]))  # the next batch works
    weft.reset_tape()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 5}, "network differs between ranks"),
        ({"solver": "serial"}, "solver differs between ranks"),
        ({"tolerance": 1e-3}, "solver differs between ranks"),
    ],
)
def test_networks_that_differ_between_ranks(change: dict[str, Any], message: str, rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("needs several ranks")
    arguments: dict[str, Any] = {"hidden_size": 4, "solver": "newton", **(change if rank == size - 1 else {})}
    net = weft.GRU(3, arguments.pop("hidden_size"), comm=weft.world(), **arguments)
    with pytest.raises(ValueError, match=message):
        net(piece(rank))


def test_options_out_of_range() -> None:
    for options, message in (
        ({"levels": 0}, "expected levels to be at least 1, got 0"),
        ({"cfactor": 1}, "expected cfactor to be at least 2, got 1"),
        ({"max_error": -1}, "expected max_error to be at least 0, got -1"),
        ({"tolerance": 0}, "expected a tolerance above 0, got 0"),
        ({"outputs": "first"}, "expected outputs to be one of all, last, got 'first'"),
    ):
        with pytest.raises(ValueError, match=message):
            weft.GRU(1, 1, **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="max_iteration"):
        weft.GRU(1, 1, max_iteration=3)
