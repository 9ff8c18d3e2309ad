"""State of modules: lifetime, hooks, edits after construction, shared modules, buffers and random numbers."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from layer_parallel.networks import Block, plain_loop, same_gradients
from torch import Tensor, nn
from torch.nn.utils import prune

import weft
from weft import LayerParallel, Solve

EXACT = Solve(iterations=40, tolerance=0, relative_tolerance=0)
ROUGH = Solve(iterations=1, tolerance=0, relative_tolerance=0)
LENDING = 10  # layers; with 2 or 3 ranks and a coarsening factor of 2, ranks need copies of other ranks' layers
pytestmark = [
    pytest.mark.usefixtures("works_afterwards"),
    pytest.mark.filterwarnings("ignore:weft. the .* solve of LayerParallel did not converge"),
]


def build(comm: weft.Communicator, layers: Any, **options: Any) -> LayerParallel:
    return LayerParallel(
        comm, layers, **{"tf": 1.0, "levels": 2, "cfactor": 2, "forward": EXACT, "backward": EXACT, **options}
    )


@pytest.fixture(scope="module")
def alone(comm: weft.Communicator) -> weft.Communicator:
    """A communicator of this rank only."""
    single = comm.split(comm.rank)
    assert single is not None
    return single


def start(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


def train(net: LayerParallel, x: Tensor) -> Tensor:
    net.zero_grad()
    y = net(x)
    weft.backward(net.compose(lambda y: y.square().sum(), y))
    return y.detach()


def first_rank_same(comm: weft.Communicator, mine: Tensor, expected: Tensor, **tolerance: float) -> None:
    if comm.rank == 0:
        torch.testing.assert_close(mine, expected, **tolerance)


# ---- lifetime


@pytest.mark.parametrize("levels", [1, 2])
def test_a_network_is_freed(comm: weft.Communicator, levels: int) -> None:
    net = build(comm, [Block(4) for _ in range(8)], levels=levels)
    train(net, start(2, 4))
    references = [weakref.ref(net), *(weakref.ref(layer) for layer in net.layers.values())]
    del net
    gc.collect()
    assert [reference() for reference in references] == [None] * len(references)


def test_a_model_is_freed_whose_methods_the_network_calls(comm: weft.Communicator) -> None:
    class Child(Block):
        parent: Any = None

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [Child(4) for _ in range(8)]
            for layer in layers:
                layer.parent = [self]  # a list hides it from nn.Module
            solve = Solve(iterations=3, guess=self.guess)
            self.net = build(comm, layers, forward=solve, coarsen=self.transfer, refine=self.transfer)

        def guess(self, time: float) -> Tensor:
            return torch.zeros(2, 4, dtype=torch.float64)

        def transfer(self, state: Tensor, level: int) -> Tensor:
            return state

    model = Model()
    train(model.net, start(2, 4))
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None


def test_backward_works_without_the_network(comm: weft.Communicator) -> None:
    layers: list[nn.Module] = [Gain() for _ in range(8)]
    x = start(2, 4).requires_grad_()
    scale = torch.tensor(0.5, dtype=torch.float64)
    y = build(comm, layers, form="step")(x, scale)
    gc.collect()
    weft.backward(y.sum() if comm.rank == 0 else y.sum() * 0)
    if comm.rank == 0:
        assert x.grad is not None


class Gain(nn.Module):
    def forward(self, x: Tensor, dt: float, scale: Tensor) -> Tensor:
        return x + dt * scale * torch.sin(x)


# ---- hooks


@pytest.mark.parametrize("levels", [1, 2])
def test_tensor_hooks_run_once(comm: weft.Communicator, levels: int) -> None:
    class Scaled(Block):
        def forward(self, x: Tensor, scale: Tensor) -> Tensor:
            return scale * super().forward(x)

    torch.manual_seed(1)
    layers: list[nn.Module] = [Scaled(4) for _ in range(8)]
    net = build(comm, layers, levels=levels)
    scale = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    inner = scale * 1.0
    calls: list[str] = []
    weight = net.layers[str(net.own.start)].linear.weight
    weight.register_hook(lambda gradient: calls.append("weight") or 3 * gradient)
    inner.register_hook(lambda gradient: calls.append("extra") or 5 * gradient)
    y = net(start(2, 4), inner)
    weft.backward(net.compose(lambda y: y.square().sum(), y))
    plain_scale = scale.detach().clone().requires_grad_()
    copies, _, expected = plain_loop(layers, net._forms, net.tf, start(2, 4), plain_scale)
    expected.square().sum().backward()
    other = copies[net.own.start].linear.weight.grad
    torch.testing.assert_close(weight.grad, 3 * other)
    torch.testing.assert_close(comm.all_reduce(scale.grad), 5 * plain_scale.grad)
    assert sorted(calls) == ["extra", "weight"]


def test_extra_tensors_may_depend_on_each_other(comm: weft.Communicator) -> None:
    class Scaled(Block):
        def forward(self, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
            return a * b * super().forward(x)

    torch.manual_seed(2)
    layers: list[nn.Module] = [Scaled(4) for _ in range(8)]
    net = build(comm, layers)
    a = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    y = net(start(2, 4), a, a * a)
    weft.backward(net.compose(lambda y: y.square().sum(), y))
    plain = a.detach().clone().requires_grad_()
    _, _, expected = plain_loop(layers, net._forms, net.tf, start(2, 4), plain, plain * plain)
    expected.square().sum().backward()
    torch.testing.assert_close(comm.all_reduce(a.grad), plain.grad)


# ---- edits after construction


class Variable(Block):
    """A layer with every kind of state that a user may edit."""

    def __init__(self) -> None:
        super().__init__(4)
        self.norm = nn.BatchNorm1d(4).double()
        self.dropout = nn.Dropout(0.5)
        self.gain = 0.5

    def forward(self, x: Tensor) -> Tensor:
        y = self.gain * torch.tanh(self.norm(self.linear(self.dropout(x))))
        for extra in (getattr(self, "bias", None), getattr(self, "shift", None)):
            y = y if extra is None else y + extra
        return y


def set_p(net: LayerParallel) -> None:
    for part in net.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0


def evaluate_norms(net: LayerParallel) -> None:
    for part in net.modules():
        if isinstance(part, nn.BatchNorm1d):
            part.eval()


def set_gain(net: LayerParallel) -> None:
    for layer in net.layers.values():
        layer.gain = 0.1


def add_parameter(net: LayerParallel) -> None:
    for layer in net.layers.values():
        layer.bias = nn.Parameter(torch.full((4,), 0.3, dtype=torch.float64))


def replace_submodule(net: LayerParallel) -> None:
    for number, layer in net.layers.items():
        torch.manual_seed(int(number))
        layer.linear = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4)).double()


def replace_layer(net: LayerParallel) -> None:
    for number in net.own:
        torch.manual_seed(number)
        net.layers[str(number)] = Block(4)


def prune_layer(net: LayerParallel) -> None:
    for layer in net.layers.values():
        prune.l1_unstructured(layer.linear, "weight", amount=0.5)


EDITS = [set_p, evaluate_norms, set_gain, add_parameter, replace_submodule, replace_layer, prune_layer]


@pytest.mark.parametrize("when", ["before", "between"])
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_edits_of_a_rank_s_own_layers_reach_all_copies(
    comm: weft.Communicator, alone: weft.Communicator, edit: Callable[[LayerParallel], None], when: str
) -> None:
    """One iteration: results on several ranks equal those on one rank only if the copies for coarse steps are equal."""
    torch.manual_seed(3)
    layers = [Variable() for _ in range(LENDING)]
    split, single = (build(c, copy.deepcopy(layers), forward=ROUGH, backward=ROUGH) for c in (comm, alone))
    outputs = []
    for net in (split, single):
        torch.manual_seed(4)
        if when == "between":
            train(net, start(5, 4))
        edit(net)
        torch.manual_seed(5)
        outputs.append(train(net, start(5, 4)))
    first_rank_same(comm, *outputs, rtol=1e-12, atol=1e-12)
    for number in split.own:
        mine, other = split.layers[str(number)], single.layers[str(number)]
        assert all(parameter.grad is not None for parameter in mine.parameters())
        same_gradients(mine, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("edit", [add_parameter, replace_submodule, replace_layer], ids=lambda edit: edit.__name__)
def test_edited_layers_have_the_gradients_of_a_plain_loop(
    comm: weft.Communicator, edit: Callable[[LayerParallel], None]
) -> None:
    torch.manual_seed(6)
    net = build(comm, [Block(4) if edit is replace_layer else Shifted() for _ in range(LENDING)])
    train(net, start(3, 4))
    edit(net)
    train(net, start(3, 4))
    edited = nn.ModuleList(layer for part in weft._objects.all_gather(comm, [*net.layers.values()]) for layer in part)
    copies, _, y = plain_loop(list(edited), net._forms, net.tf, start(3, 4))
    y.square().sum().backward()
    for number in net.own:
        same_gradients(net.layers[str(number)], copies[number], rtol=1e-10, atol=1e-12)


class Shifted(Block):
    def __init__(self) -> None:
        super().__init__(4)

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y + self.bias if hasattr(self, "bias") else y


def test_copies_that_cannot_follow_name_the_layer(comm: weft.Communicator) -> None:
    class Local(Block):  # a local class cannot be pickled
        pass

    net = build(comm, [Local(4) for _ in range(LENDING)])
    train(net, start(2, 4))
    if comm.size == 1:
        return
    borrowed = sorted(number for part in weft._objects.all_gather(comm, [*net._copies]) for number in part)
    assert borrowed
    for layer in net.layers.values():
        layer.extra = nn.Parameter(torch.zeros(3))
    with pytest.raises(weft.LayerError, match=rf"layer ({'|'.join(map(str, borrowed))}) .*cannot be pickled"):
        net(start(2, 4))


def test_layers_cannot_be_removed(comm: weft.Communicator) -> None:
    net = build(comm, [Block(4) for _ in range(8)])
    if net.own.start == 0:
        del net.layers["0"]
    with pytest.raises(RuntimeError, match="do not add or remove"):
        net(start(2, 4))


# ---- shared modules


class Normed(nn.Module):
    def __init__(self, momentum: float | None) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4).double()
        self.norm = nn.BatchNorm1d(4, momentum=momentum).double()

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.norm(self.linear(x)))


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("levels", [1, 2])
def test_buffers_of_shared_modules_are_shared(comm: weft.Communicator, levels: int, momentum: float | None) -> None:
    torch.manual_seed(8)
    shared = Normed(momentum)
    reference = copy.deepcopy(shared)
    net = build(comm, [shared] * 10, levels=levels)
    for i in range(3):
        x = start(6, 4) + i
        net(x)
        weft.reset_tape()
        for _ in range(10):
            x = x + 0.1 * reference(x)
    if net.own:
        assert shared.norm.num_batches_tracked == 30
        torch.testing.assert_close(shared.norm.running_mean, reference.norm.running_mean)
        torch.testing.assert_close(shared.norm.running_var, reference.norm.running_var)
    net.eval()
    reference.eval()
    with torch.no_grad():
        y, x = net(start(6, 4)), start(6, 4)
        for _ in range(10):
            x = x + 0.1 * reference(x)
    first_rank_same(comm, y, x)


def test_shared_buffers_that_cannot_be_combined_are_rejected(comm: weft.Communicator) -> None:
    class Averaging(Block):
        def __init__(self) -> None:
            super().__init__(4)
            self.register_buffer("mean", torch.zeros(4, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
            return super().forward(x)

    net = build(comm, [Averaging()] * 8)
    with pytest.raises(weft.LayerError, match=r"layer \d+ \(Averaging\): .*'mean'.* other layers share"):
        net(start(2, 4))


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("edit", ["replace", "add", "double"])
def test_edited_shared_modules_sum_their_gradients(comm: weft.Communicator, edit: str, levels: int) -> None:
    torch.manual_seed(9)
    one, two = Shifted().float(), Shifted().float()
    layers: list[nn.Module] = [one, two] * 5 + [two]
    net = build(comm, layers, levels=levels)
    train(net, start(2, 4).float())
    if edit == "replace":
        one.linear.weight = nn.Parameter(one.linear.weight.detach() * 0.5)
    elif edit == "add":
        one.bias = nn.Parameter(torch.full((4,), 0.3))
    net.double()
    copies, _, y = plain_loop(layers, net._forms, net.tf, start(2, 4))
    train(net, start(2, 4))
    y.square().sum().backward()
    for number in net.own:
        same_gradients(layers[number], copies[number], rtol=1e-10, atol=1e-12)
    if edit == "replace":
        unique = [p for layer in (one, two) for p in layer.parameters()] if net.own else []
        total = weft.clip_grad_norm_(unique, 1e9, comm=comm)
        expected = nn.utils.get_total_norm([p.grad for layer in copies[:2] for p in layer.parameters()])
        if net.own:
            torch.testing.assert_close(total, expected)


def test_replaced_tied_parameters_are_rejected(comm: weft.Communicator) -> None:
    if comm.size == 1:
        return
    layers = [Block(4) for _ in range(8)]
    for layer in layers[1:]:
        layer.linear.weight = layers[0].linear.weight
    net = build(comm, layers)
    train(net, start(2, 4))
    for layer in net.layers.values():
        layer.linear.weight = nn.Parameter(torch.zeros(4, 4, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="layer 0: the parameter 'weight' is tied to a layer of another rank"):
        net(start(2, 4))


# ---- buffers that a layer assigns


class Assigning(Block):
    def __init__(self) -> None:
        super().__init__(4)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(4, dtype=torch.float64))

    def forward(self, x: Tensor, dt: float) -> Tensor:
        self.count = self.count + 1
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x + dt * torch.tanh(self.linear(x - self.mean))


@pytest.mark.parametrize("levels", [1, 2])
def test_assigned_buffers_are_restored_between_evaluations(comm: weft.Communicator, levels: int) -> None:
    torch.manual_seed(10)
    layers: list[nn.Module] = [Assigning() for _ in range(9)]
    reference = copy.deepcopy(layers)
    net = build(comm, layers, levels=levels, form="step")
    for i in range(3):
        y = train(net, start(3, 4) + i)
        expected = start(3, 4) + i
        for layer in reference:
            expected = layer(expected, 1 / 9)
    first_rank_same(comm, y, expected.detach())
    for number in net.own:
        assert layers[number].count == 3
        torch.testing.assert_close(layers[number].mean, reference[number].mean)


class Resizing(Block):
    def __init__(self) -> None:
        super().__init__(4)
        self.register_buffer("last", torch.zeros(1, dtype=torch.float64))
        self.register_buffer("constant", torch.ones(1, dtype=torch.float64).expand(4))

    def forward(self, x: Tensor) -> Tensor:
        grown = self.last.numel() + 1
        self.last.resize_(grown).fill_(1.0)
        return super().forward(x) * self.constant


def test_buffers_may_be_expanded_or_resized(comm: weft.Communicator) -> None:
    torch.manual_seed(11)
    layers: list[nn.Module] = [Resizing() for _ in range(LENDING)]
    reference = copy.deepcopy(layers)
    net = build(comm, layers)
    for _ in range(2):
        with torch.no_grad():
            y, expected = net(start(2, 4)), start(2, 4)
            for layer in reference:
                expected = expected + 1 / LENDING * layer(expected)
        first_rank_same(comm, y, expected)
    assert all(layers[number].last.numel() == 3 for number in net.own)


# ---- random numbers


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6).double()
        self.dropout = nn.Dropout(0.4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dropout(self.linear(x)))


@pytest.mark.parametrize("levels", [1, 2])
def test_networks_have_different_masks_that_the_seed_reproduces(comm: weft.Communicator, levels: int) -> None:
    torch.manual_seed(12)
    layers = [Dropping() for _ in range(6)]
    first, second = (build(comm, copy.deepcopy(layers), levels=levels) for _ in range(2))
    x = torch.ones(5, 6, dtype=torch.float64)
    runs = []
    with torch.no_grad():
        for _ in range(2):
            torch.manual_seed(13)
            runs.append([net(x) for net in (first, second, first)])
    if comm.rank == 0:
        assert torch.equal(torch.stack(runs[0]), torch.stack(runs[1]))
        assert not any(torch.equal(runs[0][i], runs[0][j]) for i, j in ((0, 1), (0, 2), (1, 2)))


@pytest.mark.parametrize("levels", [1, 2])
def test_ranks_stay_in_step_and_only_random_layers_draw_numbers(comm: weft.Communicator, levels: int) -> None:
    torch.manual_seed(14)
    layers: list[nn.Module] = [Dropping(), *(Block(6) for _ in range(7))]  # only the first rank has a random layer
    net = build(comm, layers, levels=levels)
    x = torch.ones(5, 6, dtype=torch.float64)
    before = torch.get_rng_state()
    train(net, x)
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    torch.empty((), dtype=torch.int64).random_()  # one number of 64 bits
    assert torch.equal(torch.get_rng_state(), after)
    net.eval()
    train(net, x)
    assert torch.equal(torch.get_rng_state(), after)
    drawn = torch.rand(3)
    torch.testing.assert_close(comm.all_reduce(drawn, "max"), drawn, rtol=0, atol=0)


def test_masks_are_those_of_the_first_rank_s_seed(comm: weft.Communicator, alone: weft.Communicator) -> None:
    torch.manual_seed(15)
    layers = [Dropping() for _ in range(6)]
    split, serial = build(comm, copy.deepcopy(layers)), build(alone, copy.deepcopy(layers), levels=1)
    x = torch.ones(5, 6, dtype=torch.float64)
    torch.manual_seed(16 + comm.rank)
    outputs = [split(x).detach() for _ in range(2)]
    torch.manual_seed(16)
    expected = [serial(x).detach() for _ in range(2)]
    for mine, other in zip(outputs, expected, strict=True):
        first_rank_same(comm, mine, other)
    weft.reset_tape()
