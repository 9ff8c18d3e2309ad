"""Defects of torchbraid (numbered as in the docs) that the drop-in does not have."""

import copy
import gc
import math
import weakref

import pytest
import torch
from compat.torchbraid_networks import RANK, SEED, SIZE, Dense, Loop, assert_same_pass, comm, network, owned
from resident import resident_bytes
from torch import Tensor, nn
from torchbraid import utils

import weft

pytestmark = pytest.mark.filterwarnings("ignore:weft. the .* solve of LayerParallel did not converge")

STEPS = 12
LEVELS = {"max_fwd_levels": 2, "max_bwd_levels": 2, "max_iters": 12}


def batch(*shape: int, dtype: torch.dtype = torch.double) -> Tensor:
    return torch.linspace(-1, 1, math.prod(shape), dtype=dtype).view(shape)


# 1. An exception in a layer was printed and swallowed, and training continued with a wrong output.


class Fragile(Dense):
    broken = False

    def forward(self, x: Tensor) -> Tensor:
        if self.broken:
            raise ZeroDivisionError("this layer is broken")
        return super().forward(x)


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("culprit", [0, STEPS - 1])
def test_an_exception_in_a_layer_reaches_every_rank(levels: int, culprit: int) -> None:
    m = network(Fragile, STEPS, max_fwd_levels=levels, max_bwd_levels=levels, max_iters=12)
    assert_same_pass(m, Loop(Dense, STEPS), batch(3, 4))
    mine = owned(STEPS)
    if culprit in mine:
        m.layer_models[culprit - mine.start].broken = True
    # A plain loop raises the exception of the layer.
    expected = ZeroDivisionError if SIZE == levels == 1 else weft.LayerError
    with pytest.raises(expected, match="this layer is broken") as caught:
        m(batch(3, 4))
    if expected is weft.LayerError:
        assert f"layer {culprit}" in str(caught.value)
        assert isinstance(caught.value.__cause__, ZeroDivisionError) == (culprit in mine)
    for layer in m.layer_models:
        layer.broken = False
    assert_same_pass(m, Loop(Dense, STEPS), batch(3, 4))


class FragileBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor, broken: bool) -> Tensor:
        ctx.broken = broken
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, None]:
        if ctx.broken:
            raise ZeroDivisionError("no way back")
        return gradient, None


class OneWay(Dense):
    broken = False

    def forward(self, x: Tensor) -> Tensor:
        return FragileBackward.apply(super().forward(x), self.broken)


def test_an_exception_in_backward_reaches_every_rank() -> None:
    m, x = network(OneWay, STEPS, **LEVELS), batch(3, 4)
    if RANK == SIZE - 1:
        m.layer_models[0].broken = True
    y = m(x)
    with pytest.raises(RuntimeError, match="no way back"):
        y.backward(x)
    if RANK == SIZE - 1:
        m.layer_models[0].broken = False
    assert_same_pass(m, Loop(Dense, STEPS), x)


# 2. float64: m.double() raised on one rank and hung the others; double layers truncated messages.


@pytest.mark.parametrize("levels", [1, 2])
def test_network_can_be_converted_to_double_and_back(levels: int) -> None:
    m = network(lambda: Dense(dtype=torch.float), STEPS, max_fwd_levels=levels, max_bwd_levels=levels, max_iters=12)
    x = batch(3, 4, dtype=torch.float)
    assert m(x).dtype == torch.float
    m.double()
    assert_same_pass(m, Loop(lambda: Dense(dtype=torch.float), STEPS).double(), x.double())
    m.float()
    assert_same_pass(m, Loop(lambda: Dense(dtype=torch.float), STEPS), x, tolerance=1e-5)


@pytest.mark.parametrize("dtype", [torch.double, torch.bfloat16])
def test_supports_double_and_bfloat16(dtype: torch.dtype) -> None:
    m, loop = network(lambda: Dense(dtype=dtype), STEPS, **LEVELS), Loop(lambda: Dense(dtype=dtype), STEPS)
    assert_same_pass(m, loop, batch(3, 4, dtype=dtype), tolerance=1e-12 if dtype == torch.double else 0.05)


# 3. setCFactor(dict) made forward raise TypeError; layers with forward(x, dt) failed in the dry run.


def test_coarsening_factors_may_differ_between_levels() -> None:
    m = network(Dense, 24, max_fwd_levels=3, max_bwd_levels=3, max_iters=14)
    m.setCFactor({0: 3, 1: 4})
    assert_same_pass(m, Loop(Dense, 24), batch(3, 4))


class Midpoint(Dense):
    """A custom step that uses dt."""

    def forward(self, x: Tensor, dt: float) -> Tensor:
        half = x + 0.5 * dt * torch.tanh(self.linear(x))
        return x + dt * torch.tanh(self.linear(half))


class MidpointLoop(Loop):
    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, self.dt)
        return x


@pytest.mark.parametrize("levels", [1, 3])
def test_layers_may_take_the_step_size(levels: int) -> None:
    m = network(Midpoint, STEPS, 2.0, max_fwd_levels=levels, max_bwd_levels=levels, max_iters=12)
    assert_same_pass(m, MidpointLoop(Midpoint, STEPS, 2.0), batch(3, 4))


# 4. nn.Dropout never converged, the mask of LPDropout never changed, batch normalization needed a special class.


def dropping(layer: type[nn.Module]) -> type[nn.Module]:
    class Dropping(Dense):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = layer(0.4)

        def forward(self, x: Tensor) -> Tensor:
            return self.dropout(super().forward(x))

    return Dropping


@pytest.mark.parametrize("layer", [nn.Dropout, utils.LPDropout])
def test_dropout_converges_and_changes_between_passes(layer: type[nn.Module]) -> None:
    x = batch(6, 4)
    outputs = []
    for levels in (1, 2):
        m = network(dropping(layer), STEPS, max_fwd_levels=levels, max_bwd_levels=levels, max_iters=12)
        torch.manual_seed(SEED + 1)
        outputs.append([m(x).detach(), m(x).detach()])
        if levels == 2:
            assert m.getFwdStats()[1] < 1e-12
    for serial, parallel in zip(*outputs, strict=True):
        torch.testing.assert_close(serial, parallel)  # the same masks for any number of levels
    if RANK == 0:
        assert not torch.allclose(*outputs[1])
    m.eval()
    torch.testing.assert_close(m(x), m(x), rtol=0, atol=0)


def test_backward_uses_the_mask_of_forward() -> None:
    m, x = network(dropping(nn.Dropout), STEPS, **LEVELS), batch(6, 4)
    direction = torch.sin(torch.arange(24, dtype=torch.double)).view(6, 4)
    gradient = x.clone().requires_grad_()
    y = m(gradient)
    y.backward(torch.ones_like(y))
    # network() sets the seed, so the first passes of these networks have the same masks.
    shifted = [network(dropping(nn.Dropout), STEPS, **LEVELS)(x + sign * 1e-6 * direction) for sign in (1, -1)]
    if RANK == 0:
        slope = (shifted[0] - shifted[1]).sum() / 2e-6
        torch.testing.assert_close((gradient.grad * direction).sum(), slope.detach(), rtol=1e-6, atol=1e-8)


class Normalised(nn.Module):
    def __init__(self, kind: type[nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1, dtype=torch.double)
        self.norm = kind(2).double()

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.norm(self.conv(x)))


@pytest.mark.parametrize("kind", [nn.BatchNorm2d, utils.LPBatchNorm2d])
def test_batch_normalization_matches_a_plain_loop(kind: type[nn.Module]) -> None:
    m, loop = network(lambda: Normalised(kind), STEPS, **LEVELS), Loop(Normalised, STEPS)
    for _ in range(2):
        assert_same_pass(m, loop, batch(3, 2, 4, 4), tolerance=1e-10)
    for number, layer in zip(owned(STEPS), m.layer_models, strict=True):
        mean = layer.norm.mean if kind is utils.LPBatchNorm2d else layer.norm.running_mean
        torch.testing.assert_close(mean, loop.layers[number].norm.running_mean)
        assert kind is utils.LPBatchNorm2d or layer.norm.num_batches_tracked == 2
    m.eval()
    loop.eval()
    assert_same_pass(m, loop, batch(3, 2, 4, 4), tolerance=1e-10)


# 5. A 32-step network kept about 105 states alive after backward.


class Counting(nn.Module):
    """Tracks the memory of every input state, and, by tokens, the contents of the autograd graph."""

    alive = 0
    states: list[weakref.ref[torch.UntypedStorage]] = []  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand((), dtype=torch.double))

    def forward(self, x: Tensor) -> Tensor:
        Counting.states.append(weakref.ref(x.untyped_storage()))
        return Kept.apply(x, self.weight)

    @staticmethod
    def states_alive(x: Tensor) -> int:
        gc.collect()
        alive = {reference().data_ptr() for reference in Counting.states if reference() is not None}
        return len(alive - {x.untyped_storage().data_ptr()})


class Token:
    def __init__(self) -> None:
        Counting.alive += 1

    def __del__(self) -> None:
        Counting.alive -= 1


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor, weight: Tensor) -> Tensor:
        ctx.token = Token()
        ctx.save_for_backward(x, weight)
        return weight * torch.sin(x)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return gradient * weight * torch.cos(x), (gradient * torch.sin(x)).sum()


@pytest.mark.parametrize(("levels", "skip"), [(1, False), (3, True), (3, False)])
def test_no_state_is_kept_after_backward_except_the_next_guess(levels: int, skip: bool) -> None:
    m, x = network(Counting, 32, max_fwd_levels=levels, max_bwd_levels=levels, max_iters=2), batch(7, 11)
    m.setSkipDowncycle(skip)
    guess = 0 if levels == 1 or skip else len(owned(32)) // 2 + 1  # the C-points
    held = []
    for _ in range(3):
        y = m(x)
        held.append(Counting.alive)
        assert Counting.states_alive(x) >= len(owned(32)) - 1
        y.backward(x)
        del y
        m.zero_grad()
        assert Counting.states_alive(x) <= guess and Counting.alive == 0
        Counting.states.clear()
    assert len(set(held)) == 1 and held[0] <= len(owned(32)), "in a pass: one evaluation for each of the rank's layers"


def test_memory_does_not_grow_with_batches() -> None:
    m, x = network(Counting, 8, **{**LEVELS, "max_iters": 1}), batch(1000, 8)
    Counting.states.clear()

    def train(batches: int) -> int:
        for _ in range(batches):
            m(x).backward(x)
            m(x)  # an unused output
            m.zero_grad()
            Counting.states.clear()
        return resident_bytes()

    before = train(30)
    state = x.numel() * x.element_size()
    assert train(150) - before < 60 * state  # one leaked state per batch would be 150; malloc's overhead varies


# 6. Steps had to divide by the ranks, and the dry run consumed random numbers.


@pytest.mark.parametrize("steps", [2, 5, 7, 11])
def test_supports_any_number_of_steps(steps: int) -> None:
    m = network(Dense, steps, max_fwd_levels=3, max_bwd_levels=3, max_iters=12)
    assert comm.allgather(len(m.layer_models)) == [len(owned(steps, r)) for r in range(SIZE)]
    assert_same_pass(m, Loop(Dense, steps), batch(3, 4))


@pytest.mark.parametrize("random", [False, True])
def test_a_pass_draws_one_random_number_if_its_layers_are_random(random: bool) -> None:
    m, x = network(dropping(nn.Dropout) if random else Dense, STEPS, **LEVELS), batch(3, 4)
    before = torch.get_rng_state()
    m.setCFactor(3)
    m(x).backward(x)
    m.buildSequentialOnRoot()
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    if random:
        torch.empty((), dtype=torch.int64).random_()
    assert torch.equal(torch.get_rng_state(), after)


class Unpicklable(Dense):
    def __init__(self) -> None:
        super().__init__()
        self.activation = lambda x: torch.tanh(x)  # cannot be pickled

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.linear(x))


def test_layers_need_not_be_pickled() -> None:
    m, loop, x = network(Unpicklable, STEPS, **LEVELS), Loop(Unpicklable, STEPS), batch(3, 4)
    assert_same_pass(m, loop, x)
    serial = m.buildSequentialOnRoot()
    if RANK == 0:
        torch.testing.assert_close(serial(x), loop(x))


def test_a_network_is_freed() -> None:
    m, x = network(Dense, STEPS, **LEVELS), batch(3, 4)
    m.setFwdInitialGuess(None)
    m(x).backward(x)
    references = [weakref.ref(m._network)]
    m.setCFactor(3)  # creates another network
    m(x).backward(x)
    references += [weakref.ref(m), weakref.ref(m._network), *(weakref.ref(layer) for layer in m.layer_models)]
    del m
    gc.collect()
    assert all(reference() is None for reference in references)


def test_replaced_layers_are_used() -> None:
    m, loop = network(Dense, STEPS, **LEVELS), Loop(Dense, STEPS)
    m(batch(3, 4))
    for number, place in zip(owned(STEPS), range(len(m.layer_models)), strict=True):
        m.layer_models[place] = copy.deepcopy(loop.layers[STEPS - 1 - number])
    loop.layers = nn.ModuleList(reversed(loop.layers))
    assert_same_pass(m, loop, batch(3, 4))
