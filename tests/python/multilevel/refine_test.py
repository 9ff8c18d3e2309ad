"""Refinement in depth: weights, buffers, optimizer state, step sizes and errors; nested iteration."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from layer_parallel.networks import Block, Stepped, plain_loop
from torch import Tensor, nn
from weft.multilevel import nested_iteration

import weft
from weft import LayerParallel

WIDTH = 3


class Normed(Block):
    """A layer with floating-point and integer buffers."""

    def __init__(self) -> None:
        super().__init__(WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(super().forward(x))


class Euler(Block):
    """A residual step with its own step size."""

    def __init__(self, dt: float) -> None:
        super().__init__(WIDTH)
        self.dt = dt

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dt * super().forward(x)


def numbered(layers: list[nn.Module]) -> list[nn.Module]:
    """Gives all parameters and floating-point buffers of layer i the value i."""
    with torch.no_grad():
        for number, layer in enumerate(layers):
            for tensor in [*layer.parameters(), *layer.buffers()]:
                tensor.fill_(float(number))
    return layers


def expected_value(number: int, count: int, factor: int, kind: str) -> float:
    position = number / factor
    return min(position, count - 1) if kind == "linear" else int(position)


def start(rows: int = 6) -> Tensor:
    return torch.randn(rows, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


# ---- weights and buffers


@pytest.mark.parametrize("kind", ["injection", "linear"])
@pytest.mark.parametrize(("count", "factor"), [(5, 2), (4, 3), (1, 2), (2, 5)])
def test_weights_and_buffers_are_interpolated(comm: weft.Communicator, kind: str, count: int, factor: int) -> None:
    net = LayerParallel(comm, numbered([Normed() for _ in range(count)]), tf=2.0, levels=1)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    refined, optimizer = weft.refine(net, factor, kind)
    assert optimizer is None
    assert (refined.total_layers, refined.tf, refined.levels) == (count * factor, 2.0, 1)
    numbers = [number for part in weft._objects.all_gather(comm, [*refined.own]) for number in part]
    assert numbers == list(range(count * factor))
    for number in refined.own:
        layer, value = refined.layers[str(number)], expected_value(number, count, factor, kind)
        for tensor in [*layer.parameters(), *layer.buffers()]:
            wanted = torch.full_like(tensor, value if tensor.is_floating_point() else number // factor)
            torch.testing.assert_close(tensor.detach(), wanted)
    for key, value in net.state_dict().items():
        assert torch.equal(value, before[key])


@pytest.mark.parametrize("form", ["residual", "step"])
@pytest.mark.parametrize("solver", ["mgrit", "pipeline"])
def test_the_refined_network_takes_shorter_steps(comm: weft.Communicator, form: str, solver: str) -> None:
    """Injection applies each layer twice, with half of the step size."""
    torch.manual_seed(1)
    layers: list[nn.Module] = [(Stepped if form == "step" else Block)(WIDTH) for _ in range(5)]
    net = LayerParallel(comm, layers, tf=1.5, form=form, solver=solver, micro_batches=2, levels=1)
    refined, _ = weft.refine(net)
    assert (refined.solver, refined.micro_batches, refined.forms) == (solver, 2, [form] * 10)
    repeated = [layer for layer in layers for _ in range(2)]
    y = refined(start())
    weft.backward(refined.compose(torch.sum, y))
    _, _, expected = plain_loop(repeated, [form] * 10, 1.5, start())
    if comm.rank == 0:
        torch.testing.assert_close(y, expected)
    assert all(parameter.grad is not None for parameter in refined.parameters())


def test_options_are_kept(comm: weft.Communicator) -> None:
    solve = weft.Solve(iterations=3, relaxations=2)
    net = LayerParallel(comm, [Block(WIDTH) for _ in range(8)], levels=2, cfactor=2, forward=solve, replicated=True)
    refined, _ = weft.refine(net)
    assert refined.solves == net.solves and refined.replicated and refined.levels == 2


def test_the_controller_is_kept(comm: weft.Communicator) -> None:
    control = weft.IterationController("report")
    net = LayerParallel(comm, [Block(WIDTH) for _ in range(8)], cfactor=2, control=control)
    refined, _ = weft.refine(net)
    assert refined.control is control


# ---- optimizers


def optimizer_of(name: str, parameters: Any) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name](parameters, lr=0.01, amsgrad=True)


def layer_of(net: LayerParallel, index: int) -> nn.Module:
    return net.layers[str(index)]


@pytest.mark.parametrize("kind", ["injection", "linear"])
@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_optimizer_state_is_interpolated(comm: weft.Communicator, name: str, kind: str) -> None:
    torch.manual_seed(2)
    net = LayerParallel(comm, [Block(WIDTH) for _ in range(4)], levels=1)
    closing = nn.Linear(WIDTH, 1).double()
    weights = [layer.linear.weight for layer in net.layers.values()]
    rest = [layer.linear.bias for layer in net.layers.values()]
    optimizer = optimizer_of(name, [{"params": weights, "lr": 0.5}, {"params": [*rest, *closing.parameters()]}])
    for _ in range(3):
        optimizer.zero_grad()
        weft.backward(net.compose(lambda y: closing(y).square().sum(), net(start())))
        optimizer.step()
    state = {
        number: [{k: v.clone() for k, v in optimizer.state[p].items()} for p in layer.parameters()]
        for number, layer in ((int(n), layer) for n, layer in net.layers.items())
    }
    everything = {n: s for part in weft._objects.all_gather(comm, state) for n, s in part.items()}
    refined, continued = weft.refine(net, 2, kind, optimizer=optimizer)
    assert type(continued) is type(optimizer)
    assert [group["lr"] for group in continued.param_groups] == [0.5, optimizer.defaults["lr"]]
    assert [len(group["params"]) for group in continued.param_groups] == [
        len(refined.own),
        len(refined.own) + 2,
    ]
    for number in refined.own:
        left, odd = divmod(number, 2)
        right = min(left + 1, 3)
        weight = 0.5 if odd and kind == "linear" else 0.0
        layer = layer_of(refined, number)
        assert any(layer.linear.weight is p for p in continued.param_groups[0]["params"])
        for parameter, first, second in zip(layer.parameters(), everything[left], everything[right], strict=True):
            found = continued.state[parameter]
            assert found.keys() == first.keys() and len(found) >= 1
            for key, value in found.items():
                torch.testing.assert_close(value, (1 - weight) * first[key] + weight * second[key])
    if comm.rank == 0:
        assert continued.state[closing.weight].keys() == optimizer.state[closing.weight].keys()
    continued.zero_grad()
    weft.backward(refined.compose(lambda y: closing(y).square().sum(), refined(start())))
    before = [parameter.detach().clone() for parameter in refined.parameters()]
    continued.step()
    assert all(not torch.equal(p, old) for p, old in zip(refined.parameters(), before, strict=True))


def test_frozen_parameters_stay_frozen(comm: weft.Communicator) -> None:
    layers = [Block(WIDTH) for _ in range(4)]
    layers[1].linear.bias.requires_grad_(False)
    refined, _ = weft.refine(LayerParallel(comm, layers, levels=1))
    for number in refined.own:
        assert layer_of(refined, number).linear.bias.requires_grad == (number // 2 != 1)


def test_the_result_does_not_depend_on_the_split(comm: weft.Communicator) -> None:
    """Three levels of training with momentum equal those of a serial network."""
    torch.manual_seed(3)
    layers = [Block(WIDTH) for _ in range(3)]
    serial = nn.ModuleList(copy.deepcopy(layers))
    target = start().roll(1, 0)

    def train(net: LayerParallel, optimizer: torch.optim.Optimizer, level: int, epoch: int) -> None:
        optimizer.zero_grad()
        weft.backward(net.loss(nn.functional.mse_loss, start(), target))
        optimizer.step()

    def train_serial(net: nn.ModuleList, optimizer: torch.optim.Optimizer, level: int, epoch: int) -> None:
        optimizer.zero_grad()
        x = start()
        for layer in net:
            x = x + layer(x) / len(net)
        nn.functional.mse_loss(x, target).backward()
        optimizer.step()

    net = LayerParallel(comm, layers, solver="pipeline", micro_batches=2)
    options: dict[str, Any] = {"factor": 2, "interpolation": "linear"}
    parameters: Any = list(net.parameters()) or [{"params": []}]
    net, _ = nested_iteration(net, torch.optim.SGD(parameters, lr=0.1, momentum=0.9), [2, 3, 2], train, **options)
    serial, _ = nested_iteration(
        serial, torch.optim.SGD(serial.parameters(), lr=0.1, momentum=0.9), [2, 3, 2], train_serial, **options
    )
    assert net.total_layers == len(serial) == 12
    for number in net.own:
        for mine, other in zip(layer_of(net, number).parameters(), serial[number].parameters(), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12)


# ---- serial networks


class Stack(nn.Sequential):
    """A subclass with its own constructor."""

    def __init__(self, count: int) -> None:
        super().__init__(*(Euler(1 / count) for _ in range(count)))


def test_sequential_networks_divide_their_own_step_size() -> None:
    torch.manual_seed(4)
    net = Stack(3).eval()
    optimizer = torch.optim.Adam(net.parameters())
    net(start()).sum().backward()
    optimizer.step()
    refined, continued = weft.refine(net, 2, optimizer=optimizer)
    assert isinstance(refined, Stack) and len(refined) == 6 and not refined.training
    assert [layer.dt for layer in refined] == [1 / 6] * 6 and [layer.dt for layer in net] == [1 / 3] * 3
    assert torch.equal(refined[3].linear.weight, net[1].linear.weight)
    assert refined[3].linear.weight is not net[1].linear.weight
    state = continued.state[refined[3].linear.weight]
    assert torch.equal(state["exp_avg"], optimizer.state[net[1].linear.weight]["exp_avg"]) and state["step"] == 1


def test_serial_form_of_a_network(comm: weft.Communicator) -> None:
    net = LayerParallel(comm, [Block(WIDTH) for _ in range(4)], tf=2.0)
    serial = net.serial()
    if serial is not None:
        refined, _ = weft.refine(serial, 3, "linear")
        assert len(refined.forms) == 12 and refined.dt == pytest.approx(2.0 / 12)
        assert list(refined.layers) == [str(number) for number in range(12)]


# ---- errors


def different(what: str) -> list[nn.Module]:
    layers: list[nn.Module] = [Normed() for _ in range(5)]
    if what == "shape":
        layers[3] = Block(WIDTH + 1)
    elif what == "type":
        layers[3] = Block(WIDTH)
    elif what == "attribute":
        layers[3].norm.momentum = 0.5
    elif what == "shared":
        layers[3].linear = layers[1].linear
    return layers


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("shape", "layers 0 and 3 differ: the type is Normed in layer 0 and Block in layer 3"),
        ("type", "layers 0 and 3 differ: the type is Normed"),
        ("attribute", r"the attribute norm\.momentum is 0\.1 in layer 0 and 0\.5 in layer 3"),
        ("shared", "the layers 1, 3 share parameters"),
    ],
)
def test_networks_of_different_layers_raise_on_every_rank(
    comm: weft.Communicator, works_afterwards: None, what: str, text: str
) -> None:
    net = LayerParallel(comm, different(what), levels=1)
    with pytest.raises(ValueError, match=text):
        weft.refine(net)
    with pytest.raises(ValueError, match=text):
        weft.refine(nn.ModuleList(different(what)))


def test_shapes_are_named() -> None:
    layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 4)])
    with pytest.raises(ValueError, match=r"the parameter weight is torch.float32 of shape \(3, 3\) in layer 0 and .*4"):
        weft.refine(layers)


def test_forms_must_be_equal(comm: weft.Communicator, works_afterwards: None) -> None:
    net = LayerParallel(comm, [Block(WIDTH) for _ in range(4)], form=["residual"] * 3 + ["plain"], levels=1)
    with pytest.raises(ValueError, match="layers 0 and 3 differ: the form is residual in layer 0 and plain"):
        weft.refine(net)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"factor": 1}, "factor to be an integer of at least 2, got 1"),
        ({"factor": 1.5}, "factor to be an integer of at least 2, got 1.5"),
        ({"interpolation": "cubic"}, "expected the transfer to be one of .*'cubic'"),
        ({"optimizer": torch.optim.SGD([nn.Parameter(torch.zeros(1))])}, "no parameters of the network"),
    ],
)
def test_invalid_arguments(
    comm: weft.Communicator, works_afterwards: None, arguments: dict[str, Any], text: str
) -> None:
    net = LayerParallel(comm, [Block(WIDTH) for _ in range(4)])
    with pytest.raises(ValueError, match=text):
        weft.refine(net, **arguments)
    assert weft.refine(net)[0].total_layers == 8


def test_arguments_that_differ_between_ranks_raise(comm: weft.Communicator, works_afterwards: None) -> None:
    if comm.size == 1:
        return
    net = LayerParallel(comm, [Block(WIDTH) for _ in range(4)])
    with pytest.raises(weft.Disagreement, match=r"rank 0: factor=2, .*rank \d: factor=3"):
        weft.refine(net, 3 if comm.rank == comm.size - 1 else 2)


def test_steps_that_cannot_be_divided_raise() -> None:
    with pytest.raises(ValueError, match="no attribute 'dt'"):
        weft.refine(nn.Sequential(Block(3), Block(3)))
    with pytest.raises(TypeError, match=r"expected a LayerParallel, .* got Linear"):
        weft.refine(nn.Linear(2, 2))  # type: ignore[type-var]
    with pytest.raises(ValueError, match="no layers"):
        weft.refine(nn.ModuleList())


def test_layers_that_cannot_be_sent_raise_on_every_rank(comm: weft.Communicator, works_afterwards: None) -> None:
    class Local(Block):  # a local class cannot be pickled
        pass

    net = LayerParallel(comm, [Local(WIDTH)], levels=1)
    if comm.size == 1:
        assert weft.refine(net)[0].total_layers == 2
        return
    with pytest.raises(ValueError, match=r"fewer layers than ranks.* cannot be pickled"):
        weft.refine(net)


@pytest.mark.parametrize(
    ("epochs", "text"), [([], "at least one level"), ([1, -1], "epochs of level 1 to be at least 0")]
)
def test_invalid_epochs(epochs: list[int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        nested_iteration(nn.ModuleList([Block(3)]), None, epochs, lambda *_: None)
