"""MG/OPT over the depth of LayerParallel networks: a dense computation, fixed points, line searches and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from layer_parallel.networks import Block
from torch import Tensor, nn
from weft.multilevel import MGOPT, Backtracking, BestOf, OptimizerStep, Trial, Weighting, depth_levels

import weft
from weft import LayerParallel

WIDTH, RATE = 3, 0.2
LAYER, ENDS = WIDTH * (WIDTH + 1), WIDTH + 1  # numbers of parameters
DEPTHS = [8, 4, 2]


class Fragile(Block):
    """A layer that fails while it is ``broken``."""

    broken = False

    def forward(self, x: Tensor) -> Tensor:
        if Fragile.broken:
            raise RuntimeError("the layer fails")
        return super().forward(x)


class Model(nn.Module):
    def __init__(self, comm: weft.Communicator, depth: int, **options: Any) -> None:
        super().__init__()
        self.closing = nn.Linear(WIDTH, 1).double()
        self.net = LayerParallel(comm, [Fragile(WIDTH) for _ in range(depth)], tf=2.0, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.net.compose(self.closing, self.net(x))


def objective(model: Model, batch: tuple[Tensor, Tensor]) -> Tensor:
    return model.net.compose(nn.functional.mse_loss, model(batch[0]), batch[1])


def batch() -> tuple[Tensor, Tensor]:
    x = torch.randn(12, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    return x, 2 + x.prod(1, keepdim=True)


def models(comm: weft.Communicator, depths: list[int] = DEPTHS, **options: Any) -> list[Model]:
    torch.manual_seed(1)
    return [Model(comm, depth, **{"levels": 1, **options}) for depth in depths]


def solver(comm: weft.Communicator, made: list[Model], kind: str = "injection", **options: Any) -> tuple[MGOPT, Any]:
    search = options.pop("line_search", None)
    optimizers = [torch.optim.SGD(model.parameters(), lr=RATE) for model in made]
    levels = depth_levels(made, optimizers, objective, kind=kind, line_search=search)
    return MGOPT(comm, levels, **{"pre": 1, "post": 1, "coarse": 3, **options}), levels


def gathered(comm: weft.Communicator, model: Model) -> Tensor:
    """Returns all parameters as a vector, on every rank: the closing layer of rank 0, then the layers."""
    layers = weft._objects.all_gather(comm, [p.detach() for p in model.net.parameters()])
    ends = weft._objects.all_gather(comm, [p.detach() for p in model.closing.parameters()])[0]
    return torch.cat([tensor.flatten() for tensor in [*ends, *(t for part in layers for t in part)]])


# ---- the same algorithm with vectors and matrices


class Dense:
    def __init__(self, kind: str, tau: bool, steps: tuple[int, int, int] = (1, 1, 3)) -> None:
        self.kind, self.tau = kind, tau
        self.pre, self.post, self.coarse = steps
        self.alphas: list[float] = []

    def loss(self, x: Tensor) -> Tensor:
        depth = (len(x) - ENDS) // LAYER
        state, target = batch()
        for number in range(depth):
            layer = x[ENDS + number * LAYER : ENDS + (number + 1) * LAYER]
            weight, bias = layer[: WIDTH * WIDTH].view(WIDTH, WIDTH), layer[WIDTH * WIDTH :]
            state = state + 2.0 / depth * torch.tanh(state @ weight.T + bias)
        return (state @ x[:WIDTH, None] + x[WIDTH] - target).square().mean()

    def gradient(self, x: Tensor, v: Tensor) -> tuple[float, Tensor]:
        leaf = x.clone().requires_grad_()
        value = self.loss(leaf) - v @ leaf
        value.backward()
        return value.item(), leaf.grad

    def matrix(self, depth: int) -> Tensor:
        """The interpolation from depth / 2 layers."""
        P = torch.zeros(depth, depth // 2, dtype=torch.float64)
        for fine in range(depth):
            left = fine // 2
            share = 0.5 if fine % 2 and self.kind == "linear" and left + 1 < depth // 2 else 0.0
            P[fine, left] = 1 - share
            if share:
                P[fine, left + 1] = share
        return torch.block_diag(torch.eye(ENDS, dtype=torch.float64), torch.kron(P, torch.eye(LAYER).double()))

    def cycle(self, x: Tensor, coarser: int, v: Tensor | None = None) -> Tensor:
        v = torch.zeros_like(x) if v is None else v
        if coarser == 0:
            return self.relax(x, v, self.coarse)
        x = self.relax(x, v, self.pre)
        depth = (len(x) - ENDS) // LAYER
        P = self.matrix(depth)
        layers = x[ENDS:].view(depth, LAYER)
        start = torch.cat([x[:ENDS], layers[::2].flatten()])
        loss, g = self.gradient(x, v)
        difference = self.gradient(start, torch.zeros_like(start))[1] - P.T @ g
        solution = self.cycle(start, coarser - 1, difference if self.tau else torch.zeros_like(start))
        e = P @ (solution - start)
        alpha = 1.0 if g @ e < 0 else 0.0
        for _ in range(6 if alpha else 0):
            if self.loss(x + alpha * e) - v @ (x + alpha * e) < loss + 0.0001 * alpha * (g @ e):
                break
            alpha /= 2
        else:
            alpha = 0.0
        self.alphas.append(alpha)
        return self.relax(x + alpha * e, v, self.post)

    def relax(self, x: Tensor, v: Tensor, steps: int) -> Tensor:
        for _ in range(steps):
            x = x - RATE * self.gradient(x, v)[1]
        return x


@pytest.mark.parametrize(
    "options", [{"levels": 1}, {"solver": "pipeline", "micro_batches": 3}], ids=["loop", "pipeline"]
)
@pytest.mark.parametrize("kind", ["injection", "linear"])
def test_cycles_equal_a_dense_computation(comm: weft.Communicator, kind: str, options: dict[str, Any]) -> None:
    made = models(comm, **options)
    start = gathered(comm, made[0])
    mgopt, levels = solver(comm, made, kind)
    dense, without = Dense(kind, tau=True), Dense(kind, tau=False)
    expected = other = start
    for _ in range(2):
        mgopt.cycle(batch())
        expected, other = dense.cycle(expected, 2), without.cycle(other, 2)
    found = gathered(comm, made[0])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    assert (expected - other).abs().max() > 1e-3, "the test needs a problem in which tau matters"
    # The dense computation visits the middle level before it appends the step of the fine level.
    assert [*levels[0].steps] == dense.alphas[1::2] and [*levels[1].steps] == dense.alphas[::2]
    assert max(levels[0].steps) > 0


def test_multigrid_solves_that_converge_give_the_same_cycle(comm: weft.Communicator) -> None:
    solve = weft.Solve(iterations=8, tolerance=0, relative_tolerance=1e-13)
    made = models(comm, levels=2, cfactor=2, forward=solve, backward=solve)
    start = gathered(comm, made[0])
    solver(comm, made)[0].cycle(batch())
    torch.testing.assert_close(gathered(comm, made[0]), Dense("injection", True).cycle(start, 2), rtol=1e-8, atol=1e-9)


def test_a_minimum_is_a_fixed_point(comm: weft.Communicator) -> None:
    """Without tau, the coarse level would move away from the minimum of the fine level."""
    made = models(comm, [4, 2])
    x, y = batch()
    with torch.no_grad():
        weights = made[0](x)
        target = comm.broadcast(weights if comm.rank == 0 else torch.zeros_like(y))
    before = gathered(comm, made[0])
    mgopt, _ = solver(comm, made, line_search=Weighting(1.0))
    mgopt.cycle((x, target))
    torch.testing.assert_close(gathered(comm, made[0]), before, rtol=0, atol=1e-12)
    coarse = made[1]
    with torch.no_grad():
        residual = coarse.net.compose(nn.functional.mse_loss, coarse(x), target)
    assert comm.rank != 0 or residual > 1e-4  # it is no minimum of the coarse model


@pytest.mark.parametrize("search", [Backtracking(), BestOf([0.1, 0.5, 1.0]), Weighting(0.5), OptimizerStep()])
def test_training_reduces_the_loss(comm: weft.Communicator, search: Any) -> None:
    mgopt, _ = solver(comm, models(comm), line_search=search)
    losses = [mgopt.cycle(batch()) for _ in range(5)]
    assert losses[-1] < 0.7 * losses[0]
    assert weft._objects.all_gather(comm, losses[-1]) == [losses[-1]] * comm.size


# ---- line searches that fail


def test_a_search_without_success_keeps_the_parameters(comm: weft.Communicator) -> None:
    made = models(comm)
    before = gathered(comm, made[0])
    mgopt, levels = solver(comm, made, line_search=Backtracking(c1=1e6), pre=0, post=0)
    mgopt.cycle(batch())
    assert levels[0].steps == [0.0]
    assert torch.equal(gathered(comm, made[0]), before)


@pytest.mark.parametrize("problem", ["nan", "raises", "layer"])
def test_errors_restore_the_parameters(comm: weft.Communicator, works_afterwards: None, problem: str) -> None:
    made = models(comm)

    def search(trial: Trial) -> float:
        trial.move(0.5)
        if problem == "raises":
            raise RuntimeError("no step")
        if problem == "layer":
            Fragile.broken = True
            trial.loss()
        return float("nan")

    before = gathered(comm, made[0])
    texts = {"nan": "line search of level 1 returned nan", "raises": "no step", "layer": "the layer fails"}
    mgopt, _ = solver(comm, made, line_search=search, pre=0, post=0)
    with pytest.raises((RuntimeError, ValueError), match=texts[problem]):
        mgopt.cycle(batch())
    Fragile.broken = False
    assert torch.equal(gathered(comm, made[0]), before)
    weft.reset_tape()
    solver(comm, made)[0].cycle(batch())


# ---- hierarchies


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda comm: models(comm, [8, 3]), r"networks of \[8\] and \[3\] layers"),
        (lambda comm: models(comm, [4, 4]), "integer ratio of at least 2"),
        (lambda comm: models(comm, [4, 2], replicated=True), "without replicated=True"),
        (lambda comm: [nn.Linear(2, 2)], "model 0 to contain LayerParallel"),
    ],
)
def test_models_that_form_no_hierarchy(comm: weft.Communicator, make: Callable[[Any], Any], text: str) -> None:
    made = make(comm)
    with pytest.raises(ValueError, match=text):
        depth_levels(made, [torch.optim.SGD(model.parameters(), lr=0.1) for model in made], objective)


def test_each_model_needs_an_optimizer(comm: weft.Communicator) -> None:
    with pytest.raises(ValueError, match="an optimizer for each of 2 models, got 0"):
        depth_levels(models(comm, [4, 2]), [], objective)
