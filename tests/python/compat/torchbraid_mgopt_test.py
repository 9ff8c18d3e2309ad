"""torchbraid's spline weights, nested iteration and MG/OPT against references on one rank."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
import torchbraid
from mpi4py import MPI
from torch import Tensor, nn
from torchbraid import mgopt
from torchbraid.bsplines import BsplineBasis
from torchbraid.mgopt import mgopt_solver

comm = MPI.COMM_WORLD
WIDTH = 3


class Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


class Net(nn.Module):
    def __init__(self, steps: int) -> None:
        super().__init__()
        self.parallel_nn = torchbraid.LayerParallel(comm, Step, int(steps), Tf=1.0)
        self.compose = self.parallel_nn.comp_op()
        self.closing = self.compose(nn.Linear, WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.compose(self.closing, self.parallel_nn(x))


# ---- modules


@pytest.mark.parametrize(
    "name",
    "braid_vector bsplines gru_layer_parallel layer_parallel lp_module mgopt test_fixtures test_fixtures.test_cbs "
    "test_fixtures.gpumpi_check utils.bufpackunpack utils.context_timer utils.context_timer_manager "
    "utils.data_parallel utils.done_flag utils.fake_mpi utils.functional utils.gittools utils.lp_batchnorm "
    "utils.lp_dropout utils.mean_initial_guess_storage utils.new_batch_flag".split(),
)
def test_modules_have_torchbraids_names(name: str) -> None:
    assert importlib.import_module(f"torchbraid.{name}")


def test_flags_are_shared_by_the_modules_of_a_layer() -> None:
    norms = nn.Sequential(torchbraid.utils.LPBatchNorm2d(2), torchbraid.utils.LPBatchNorm2d(2))
    flag = torchbraid.utils.DoneFlag.allocate()
    torchbraid.utils.DoneFlag.module_register(norms, flag)
    torchbraid.utils.DoneFlag.update(flag, False)
    assert not norms[0].done_flag and not norms[1].done_flag
    assert list(norms[0].state_dict()) == ["weight", "bias", "mean", "var", "done_flag"]
    norms[0](torch.randn(4, 2)), norms[0](torch.randn(4, 2, 3)), norms[0](torch.randn(4, 2, 3, 3))


# ---- splines


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_splines_sum_to_one_and_are_smooth(degree: int) -> None:
    basis = BsplineBasis(7, degree, 2.0)
    rows = []
    for i in range(201):
        values, first = basis.eval(i / 100)
        assert len(values) == degree + 1 and 0 <= first <= 6 - degree
        assert sum(values) == pytest.approx(1) and min(values) >= -1e-12
        rows.append([0.0] * first + values + [0.0] * (6 - degree - first))
    jumps = torch.tensor(rows).diff(dim=0).abs().max().item()
    assert jumps <= (1 if degree == 0 else 0.05)


@pytest.mark.parametrize("levels", [1, 2])
def test_spline_weights_equal_explicitly_combined_ones(levels: int) -> None:
    steps, splines = 8, 4
    torch.manual_seed(3)
    m = torchbraid.LayerParallel(
        comm, Step, steps, Tf=1.0, max_fwd_levels=levels, max_bwd_levels=levels, nsplines=splines, splinedegree=2
    )
    m.setMaxIters(10)
    torch.manual_seed(3)
    controls = nn.ModuleList(Step() for _ in range(splines))
    x = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(1))
    y = m(x)
    comp = m.comp_op()
    comp(torch.sum, y).backward()
    expected, basis = x, BsplineBasis(splines, 2, 1.0)
    for number in range(steps):
        values, first = basis.eval(number / steps)
        weight, bias = (
            sum(v * getattr(controls[first + j].linear, name) for j, v in enumerate(values))
            for name in ("weight", "bias")
        )
        expected = expected + torch.tanh(nn.functional.linear(expected, weight, bias)) / steps
    expected.sum().backward()
    if comm.Get_rank() == 0:
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    mine = {id(p): p for p in m.parameters()}
    assert len(mine) <= 2 * splines
    sums = {id(p): p.grad for p in mine.values()}
    for number, layer in m.numbered_layers():
        _, first = basis.eval(number / steps)
        for j, control in enumerate(layer.controls):
            for p, q in zip(control.parameters(), controls[first + j].parameters(), strict=True):
                torch.testing.assert_close(sums[id(p)], q.grad, rtol=1e-4, atol=1e-5)


# ---- transfers


def numbered(steps: int) -> Net:
    """A network whose layer i has the value i everywhere."""
    net = Net(steps)
    with torch.no_grad():
        for number, layer in net.parallel_nn.numbered_layers():
            for p in layer.parameters():
                p.fill_(float(number))
    return net


@pytest.mark.parametrize(
    ("transfer", "source", "target", "expected"),
    [
        (mgopt.tb_get_injection_interp_params, 3, 6, [0, 0, 1, 1, 2, 2]),
        (mgopt.tb_parallel_get_injection_interp_params, 2, 6, [0, 0, 0, 1, 1, 1]),
        (mgopt.tb_get_linear_interp_params, 3, 6, [0, 0.5, 1, 1.5, 2, 2]),
        (mgopt.tb_get_injection_restrict_params, 6, 3, [0, 2, 4]),
        (mgopt.tb_get_linear_restrict_params, 6, 3, [0, 2, 4]),
    ],
)
def test_transfers_between_depths(transfer: Any, source: int, target: int, expected: list[float]) -> None:
    given, wanted = numbered(source), Net(target)
    fine, coarse = (wanted, given) if target > source else (given, wanted)
    values = transfer(fine, coarse, cf=max(source, target) // min(source, target))
    mgopt.write_params_inplace(wanted, values)
    for number, layer in wanted.parallel_nn.numbered_layers():
        for p in layer.parameters():
            torch.testing.assert_close(p, torch.full_like(p, expected[number]))
    if comm.Get_rank() == 0:
        torch.testing.assert_close(wanted.closing.weight, given.closing.weight)


# ---- nested iteration and MG/OPT


def data() -> Any:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(24, WIDTH, generator=generator)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long()), batch_size=8)


def solver(levels: int = 3, **options: Any) -> mgopt_solver:
    steps = [2 * 2**k for k in range(levels)]
    made = mgopt_solver()
    torch.manual_seed(1)
    made.initialize_with_nested_iteration(
        lambda level, **kwargs: Net(**kwargs),
        steps,
        data(),
        data(),
        [("Factory", {"steps": n}) for n in reversed(steps)],
        mgopt_printlevel=0,
        **options,
    )
    return made


def test_nested_iteration_starts_from_the_interpolated_weights() -> None:
    made = solver(epochs=0)
    assert [level.model.parallel_nn.global_steps for level in made.levels] == [8, 4, 2]
    for fine, coarse in zip(made.levels[:-1], made.levels[1:], strict=True):
        interpolated = mgopt.tb_get_injection_interp_params(fine.model, coarse.model, cf=2)
        for mine, other in zip(fine.model.parameters(), interpolated, strict=True):
            torch.testing.assert_close(mine, other)


SEARCHES = [
    ("tb_simple_ls", {"ls_params": {"alphas": [0.1, 0.5, 1.0]}}),
    ("tb_simple_backtrack_ls", {"ls_params": {"n_line_search": 4, "alpha": 1.0, "c1": 0.0001}}),
    ("tb_simple_weighting", {"ls_params": {"alpha": 0.5}}),
    ("tb_adam_no_ls", {"ls_params": {}}),
]


@pytest.mark.parametrize("search", SEARCHES, ids=lambda s: s[0])
def test_mgopt_reduces_the_loss(search: Any) -> None:
    made = solver(epochs=1, optims=("pytorch_sgd", {"lr": 0.1}))
    losses = made.mgopt_solve(data(), data(), epochs=6, mgopt_printlevel=0, line_search=search)
    assert len(losses) == 18
    assert sum(losses[-3:]) < 0.9 * sum(losses[:3])
    assert len(made.levels[0].out_ls_step) == 18
    assert comm.allgather(losses[-1]) == [losses[-1]] * comm.Get_size()


def test_a_minimum_is_a_fixed_point() -> None:
    """With the tau correction, the coarse levels do not move a network whose gradient is zero."""
    made = solver(levels=2, epochs=0, optims=("pytorch_sgd", {"lr": 0.5}))
    fine = made.levels[0].model
    with torch.no_grad():
        for parameter in fine.parameters():
            parameter.zero_()
    x = torch.zeros(8, WIDTH)
    balanced = [(x, torch.tensor([0, 1] * 4))]
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(balanced[0][0], balanced[0][1]), batch_size=8)
    made.mgopt_solve(
        loader, loader, mgopt_printlevel=0, line_search=("tb_simple_weighting", {"ls_params": {"alpha": 1}})
    )
    for parameter in fine.parameters():
        torch.testing.assert_close(parameter, torch.zeros_like(parameter), rtol=0, atol=1e-6)


def test_a_line_search_without_descent_keeps_the_parameters() -> None:
    model = Net(4)
    before = mgopt.get_params(model, deep_copy=True)
    direction = [torch.ones_like(p) for p in before]
    alpha = mgopt.tb_simple_backtrack_ls(
        0, direction, mgopt.get_params(model), None, model, *next(iter(data())), None, mgopt.tb_mgopt_cross_ent, {},
        model.compose, 0.0, 1.0, 0, {"n_line_search": 3, "alpha": 1.0, "c1": 0.1},
    )  # fmt: skip
    assert alpha == 0
    for mine, other in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"interp_params": "magic"}, "expected the interpolation to be one of"),
        ({"optims": "magic"}, "expected an optimizer out of"),
        ({"criterions": "magic"}, "expected the criterion to be one of"),
    ],
)
def test_unknown_options(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        solver(levels=2, epochs=1, **given)


def test_depths_must_have_a_constant_ratio() -> None:
    with pytest.raises(ValueError, match="constant integer ratio"):
        mgopt_solver().initialize_with_nested_iteration(Net, [2, 4, 12], None, None, [1, 2, 3])


def test_reports_are_collective(capsys: Any) -> None:
    made = solver(levels=2, epochs=0)
    text = repr(made)
    made.options_used()
    assert ("Number of Levels:     2" in text) == (comm.Get_rank() == 0)
    assert ("tb_mgopt_cross_ent" in capsys.readouterr().out) == (comm.Get_rank() == 0)
