"""LayerParallel against a plain loop over the same layers: values and gradients for all splits and solvers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from layer_parallel.networks import Block, Pair, Stepped, plain_loop, same_gradients
from torch import Tensor, nn

import weft
from weft import LayerParallel, Solve

EXACT = Solve(iterations=40, tolerance=0, relative_tolerance=0)


def build(comm: weft.Communicator, layers: list[nn.Module], **options: Any) -> LayerParallel:
    options = {"tf": 1.5, "forward": EXACT, "backward": EXACT, **options}
    return LayerParallel(comm, layers, **options)


def start(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(7))


def check(net: LayerParallel, layers: list[nn.Module], x: Any, loss: Callable[[Any], Tensor], *extras: Tensor) -> None:
    """Compares a training step of both."""
    leaf = tree(x, lambda t: t.clone().requires_grad_())
    y = net(leaf, *extras)
    weft.backward(net.compose(loss, y))
    copy, serial_leaf, expected = plain_loop(layers, net._forms, net.tf, x, *extras)
    loss(expected).backward()
    tolerance = {"rtol": 1e-10, "atol": 1e-12}
    if net.comm.rank == 0:
        torch.testing.assert_close(y, expected, **tolerance)
        tree2(leaf, serial_leaf, lambda a, b: torch.testing.assert_close(a.grad, b.grad, **tolerance))
    for number in net.own:
        same_gradients(net.layers[str(number)], copy[number], **tolerance)


def tree(x: Any, f: Callable[[Tensor], Tensor]) -> Any:
    return tuple(f(t) for t in x) if isinstance(x, tuple) else f(x)


def tree2(x: Any, y: Any, f: Callable[[Tensor, Tensor], None]) -> None:
    for a, b in zip(*((t,) if isinstance(t, Tensor) else t for t in (x, y)), strict=True):
        f(a, b)


def energy(y: Any) -> Tensor:
    parts = (y,) if isinstance(y, Tensor) else y
    return torch.stack(
        [(part * torch.linspace(0.5, 1.5, part.numel(), dtype=part.dtype).view(part.shape)).sum() for part in parts]
    ).sum()


GRIDS = [{"levels": 1}, {"levels": 2, "cfactor": 2}, {"levels": 3, "cfactor": 2}, {"levels": 2, "cfactor": {0: 3}},
         {"levels": 3, "cfactor": {0: 4, 1: 2}, "min_coarse": 1}, {"levels": 2, "cfactor": 4, "backward_levels": 1},
         {"levels": 1, "backward_levels": 3, "backward_cfactor": 2}]  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 13, 16])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_matches_a_plain_loop(comm: weft.Communicator, grid: dict[str, Any], count: int) -> None:
    torch.manual_seed(1)
    layers: list[nn.Module] = [Block(5) for _ in range(count)]
    check(build(comm, layers, **grid), layers, start(3, 5), energy)


SOLVES = [
    Solve(iterations=40, relaxations=0),
    Solve(iterations=40, relaxations={0: 0, 1: 2}),
    Solve(iterations=60, c_weight=0.8, tolerance=1e-14, relative_tolerance=0),
    Solve(iterations=40, cycle="F"),
    Solve(iterations=40, skip_downcycle=True),
    Solve(iterations=40, storage="c-points"),
    Solve(iterations=40, guess="constant", norm=1),
    Solve(iterations=40, guess="coarse", norm=float("inf")),
    Solve(iterations=40, guess="previous", residual=False),
]


@pytest.mark.parametrize(
    "solve", SOLVES, ids=lambda s: ",".join(f"{k}={v}" for k, v in vars(s).items() if v != getattr(Solve(), k))
)
def test_all_solvers_converge_to_the_loop(comm: weft.Communicator, solve: Solve) -> None:
    torch.manual_seed(2)
    layers: list[nn.Module] = [Block(4) for _ in range(17)]
    solve = Solve(**{**vars(solve), "tolerance": 0.0, "relative_tolerance": 0.0})
    net = build(comm, layers, levels=3, cfactor=2, forward=solve, backward=solve)
    check(net, layers, start(2, 4), energy)
    net.zero_grad()
    check(net, layers, start(2, 4) + 1, energy)  # other values with the same solver


def test_two_levels_are_exact_after_one_cycle_per_coarse_point(comm: weft.Communicator) -> None:
    torch.manual_seed(3)
    layers: list[nn.Module] = [Block(4) for _ in range(22)]
    cycles = Solve(iterations=6, relaxations=0, residual=False)  # ceil(22 / 4)
    check(build(comm, layers, levels=2, cfactor=4, forward=cycles, backward=cycles), layers, start(2, 4), energy)


@pytest.mark.parametrize("levels", [1, 3])
def test_layers_of_all_forms_in_one_network(comm: weft.Communicator, levels: int) -> None:
    torch.manual_seed(4)
    makers = {"residual": lambda: Block(4), "step": lambda: Stepped(4), "plain": lambda: Block(4)}
    forms = [*["plain"], *["step"] * 5, *["residual"] * 6, "plain", "plain"]
    layers = [makers[form]() for form in forms]
    check(build(comm, layers, levels=levels, cfactor=2, form=forms), layers, start(3, 4), energy)


@pytest.mark.parametrize("levels", [1, 2])
def test_supports_tuple_states(comm: weft.Communicator, levels: int) -> None:
    torch.manual_seed(5)
    layers: list[nn.Module] = [Pair(3) for _ in range(9)]
    check(build(comm, layers, levels=levels, cfactor=3), layers, (start(2, 3), start(2, 3) * 0.3), energy)


@pytest.mark.parametrize("levels", [1, 3])
def test_extra_arguments_reach_layers_and_have_gradients(comm: weft.Communicator, levels: int) -> None:
    class Masked(Block):
        def forward(self, x: Tensor, mask: Tensor, *, gain: Tensor) -> Tensor:
            return super().forward(x) * mask * gain

    torch.manual_seed(6)
    layers: list[nn.Module] = [Masked(4) for _ in range(11)]
    net = build(comm, layers, levels=levels, cfactor=2)
    mask, gain = start(4).abs(), torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    y = net(start(2, 4), mask, gain=gain)
    weft.backward(net.compose(energy, y))
    other = gain.detach().clone().requires_grad_()
    x = start(2, 4)
    for layer in layers:
        x = x + net.tf / 11 * Block.forward(layer, x) * mask * other  # type: ignore[arg-type]
    energy(x).backward()
    if comm.rank == 0:
        torch.testing.assert_close(y, x)
    parts = torch.zeros(()).double() if gain.grad is None else gain.grad
    torch.testing.assert_close(comm.all_reduce(parts), other.grad)  # each rank has the contribution of its layers


@pytest.mark.parametrize("levels", [1, 2])
def test_shared_weights_are_summed(comm: weft.Communicator, levels: int) -> None:
    torch.manual_seed(7)
    one, two = Block(4), Block(4)
    layers: list[nn.Module] = [one, two] * 5 + [two]
    net = build(comm, layers, levels=levels, cfactor=2)
    check(net, layers, start(3, 4), energy)
    weft.backward(net.compose(energy, net(start(3, 4))))  # gradients accumulate over passes
    total = weft.clip_grad_norm_(net.parameters(), 1e9, comm=comm)
    copy, _, expected = plain_loop(layers, net._forms, net.tf, start(3, 4))
    (2 * energy(expected)).backward()
    everything = nn.ModuleList(dict.fromkeys(copy)).parameters()
    torch.testing.assert_close(
        total.item(), nn.utils.get_total_norm([p.grad for p in everything if p.grad is not None]).item()
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.complex128], ids=str)
def test_supports_other_dtypes(comm: weft.Communicator, dtype: torch.dtype) -> None:
    torch.manual_seed(8)
    layers: list[nn.Module] = [Block(4).to(dtype) for _ in range(8)]
    few = Solve(iterations=6, residual=False)
    net = build(comm, layers, levels=2, cfactor=2, forward=few, backward=few)
    x = start(3, 4).to(dtype)
    y = net(x)
    assert y.dtype == dtype
    weft.backward(net.compose(lambda y: y.abs().square().sum(), y))
    copy, _, expected = plain_loop(layers, net._forms, net.tf, x)
    expected.abs().square().sum().backward()
    tolerance = {torch.float32: 1e-5, torch.complex128: 1e-10}.get(dtype, 6e-2)
    if comm.rank == 0:
        torch.testing.assert_close(y, expected, rtol=tolerance, atol=tolerance)
    for number in net.own:
        same_gradients(net.layers[str(number)], copy[number], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("levels", [1, 2])
def test_replicated_layers_have_the_gradients_of_one_loss(comm: weft.Communicator, levels: int) -> None:
    """All ranks run the opening and closing layers and the loss; the gradients are those of one loss."""
    torch.manual_seed(9)
    layers: list[nn.Module] = [Block(4) for _ in range(9)]
    net = build(comm, layers, levels=levels, cfactor=3, replicated=True)
    opening, closing = (nn.Linear(4, 4).double() for _ in range(2))
    weft.backward(net.compose(energy, net.compose(closing, net(net.compose(opening, start(2, 4))))))
    mine = [p.grad.clone() for p in (*opening.parameters(), *closing.parameters())]
    for module in (opening, closing):
        module.zero_grad()
    copy, _, y = plain_loop(layers, net._forms, net.tf, opening(start(2, 4)), detach=False)
    energy(closing(y)).backward()
    torch.testing.assert_close(mine, [p.grad for p in (*opening.parameters(), *closing.parameters())])
    for number in net.own:
        same_gradients(net.layers[str(number)], copy[number], rtol=1e-10, atol=1e-12)


def test_only_the_first_rank_runs_composed_layers(comm: weft.Communicator) -> None:
    torch.manual_seed(10)
    layers: list[nn.Module] = [Block(4) for _ in range(9)]
    net = build(comm, layers, levels=2, cfactor=3)
    opening, closing = (nn.Linear(4, 4).double() for _ in range(2))
    y = net.compose(closing, net(net.compose(opening, start(2, 4))))
    net.compose(energy, y).backward()  # plain backward works: the zero of every rank is joined to the graph
    gradients = [p.grad for p in (*opening.parameters(), *closing.parameters())]
    if comm.rank > 0:
        assert all(g is None for g in gradients)
        return
    mine = [g.clone() for g in gradients if g is not None]
    for module in (opening, closing):
        module.zero_grad()
    _, _, y = plain_loop(layers, net._forms, net.tf, opening(start(2, 4)), detach=False)
    energy(closing(y)).backward()
    torch.testing.assert_close(mine, [p.grad for p in (*opening.parameters(), *closing.parameters())])


@pytest.mark.parametrize("levels", [1, 2])
def test_gradients_match_finite_differences(comm: weft.Communicator, levels: int) -> None:
    """Finite differences for the input of rank 0 and for one weight of every layer."""
    torch.manual_seed(11)
    layers: list[nn.Module] = [Block(3) for _ in range(7)]
    net = build(comm, layers, levels=levels, cfactor=2)
    x = start(2, 3).requires_grad_()
    weft.backward(net.compose(energy, net(x)))

    def value(shifted: Tensor) -> float:
        with torch.no_grad():
            result = net.compose(energy, net(shifted))
            return comm.broadcast(result.double().reshape(1)).item()

    step = 1e-6
    for place in [(0, 0), (1, 2)]:
        shift = torch.zeros(2, 3, dtype=torch.float64)
        shift[place] = step
        slope = (value(x.detach() + shift) - value(x.detach() - shift)) / (2 * step)
        if comm.rank == 0:
            assert x.grad is not None and abs(slope - x.grad[place].item()) < 1e-7
    for number in range(7):
        weight = net.layers[str(number)].linear.weight if number in net.own else None
        slopes = []
        for sign in (1, -1):
            if weight is not None:
                weight.data[1, 2] += sign * step
            slopes.append(value(x.detach()))
            if weight is not None:
                weight.data[1, 2] -= sign * step
        if weight is not None:
            assert weight.grad is not None
            assert abs((slopes[0] - slopes[1]) / (2 * step) - weight.grad[1, 2].item()) < 1e-7


def test_layers_can_come_from_a_function(comm: weft.Communicator) -> None:
    def make(number: int) -> nn.Module:
        torch.manual_seed(number)
        return Block(4)

    net = build(comm, make, steps=10, levels=2, cfactor=2)  # type: ignore[arg-type]
    check(net, [make(number) for number in range(10)], start(2, 4), energy)


def test_two_passes_can_share_a_retained_graph(comm: weft.Communicator) -> None:
    torch.manual_seed(12)
    layers: list[nn.Module] = [Block(4) for _ in range(9)]
    net = build(comm, layers, levels=2, cfactor=3)
    first, second = net(start(2, 4)), net(start(2, 4) * 2)
    loss = net.compose(lambda a, b: energy(a) + energy(b), first, second)
    weft.backward(loss, retain_graph=True)
    weft.backward(loss)
    copy, _, y = plain_loop(layers, net._forms, net.tf, start(2, 4))
    for _ in range(2):
        energy(y).backward(retain_graph=True)
    z = start(2, 4) * 2
    for layer in copy:
        z = z + net.tf / 9 * layer(z)
    for _ in range(2):
        energy(z).backward(retain_graph=True)
    for number in net.own:
        same_gradients(net.layers[str(number)], copy[number], rtol=1e-10, atol=1e-12)


def test_runs_under_no_grad(comm: weft.Communicator) -> None:
    torch.manual_seed(13)
    layers: list[nn.Module] = [Block(4) for _ in range(9)]
    net = build(comm, layers, levels=2, cfactor=3)
    with torch.no_grad():
        y = net(start(2, 4))
    assert not y.requires_grad
    _, _, expected = plain_loop(layers, net._forms, net.tf, start(2, 4))
    if comm.rank == 0:
        torch.testing.assert_close(y, expected.detach())


def test_statistics_count_iterations_steps_and_residuals(comm: weft.Communicator) -> None:
    torch.manual_seed(14)
    net = build(
        comm,
        [Block(4) for _ in range(32)],
        levels=2,
        cfactor=4,
        forward=Solve(iterations=3, tolerance=0, relative_tolerance=0),
    )
    net(start(2, 4))
    forward, _ = net.statistics
    assert forward.iterations == 3 and len(forward.residuals) == 3 and not forward.converged
    known = forward.known
    assert len(known) == 3 and known[2] < known[1] < known[0]
    fine, coarse = comm.all_reduce(torch.tensor(forward.steps)).tolist()
    assert fine == 3 * (24 + 8 + 24 + 8) + 32  # F, C, F, residual; final sweep
    assert coarse == 3 * (8 + 8) - 5  # right-hand side and solve; only the first step from the input is not repeated
    weft.reset_tape()


def test_warns_if_a_solve_stalls(comm: weft.Communicator) -> None:
    class Wild(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 30 * torch.sin(5 * x)

    net = LayerParallel(comm, [Wild() for _ in range(32)], tf=4.0, levels=2, cfactor=4, forward=Solve(iterations=2))
    with pytest.warns(UserWarning, match="did not converge"):
        net(torch.ones(2, 2))
    weft.reset_tape()


def test_replaced_parameters_are_used(comm: weft.Communicator) -> None:
    torch.manual_seed(15)
    layers: list[nn.Module] = [Block(4) for _ in range(8)]
    net = build(comm, layers, levels=2, cfactor=2)
    net(start(2, 4))
    weft.reset_tape()
    for layer in layers:
        layer.linear.weight = nn.Parameter(layer.linear.weight.detach() * 0.5)
    check(net, layers, start(2, 4), energy)
