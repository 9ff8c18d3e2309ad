"""Training with LayerParallel: dropout, batch normalization, optimizers, checkpoints, memory, and errors."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import jobs
import pytest
import torch
import torch.nn.functional as F
from layer_parallel.networks import Block, plain_loop
from resident import resident_bytes
from torch import Tensor, nn

import weft
from weft import LayerParallel, Solve

EXACT = Solve(iterations=40, tolerance=0, relative_tolerance=0)
pytestmark = pytest.mark.usefixtures("works_afterwards")


def build(comm: weft.Communicator, layers: list[nn.Module], **options: Any) -> LayerParallel:
    return LayerParallel(
        comm, layers, **{"tf": 1.0, "levels": 2, "cfactor": 2, "forward": EXACT, "backward": EXACT, **options}
    )


@pytest.fixture(scope="module")
def alone(comm: weft.Communicator) -> weft.Communicator:
    """A communicator of this rank only."""
    single = comm.split(comm.rank)
    assert single is not None
    return single


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6).double()
        self.dropout = nn.Dropout(0.4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dropout(self.linear(x)))


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(x)))


def first_rank_same(comm: weft.Communicator, mine: Tensor, alone: Tensor, **tolerance: float) -> None:
    if comm.rank == 0:
        torch.testing.assert_close(mine, alone, **tolerance)


@pytest.mark.parametrize("levels", [1, 3])
def test_dropout_mask_is_constant_in_a_pass_and_changes_between_passes(
    comm: weft.Communicator, alone: weft.Communicator, levels: int
) -> None:
    torch.manual_seed(1)
    layers: list[nn.Module] = [Dropping() for _ in range(12)]
    split, single = (build(where, copy.deepcopy(layers), levels=levels) for where in (comm, alone))
    serial = build(alone, copy.deepcopy(layers), levels=1)
    x = torch.randn(5, 6, dtype=torch.float64)
    outputs = []
    for _ in range(3):
        before = torch.get_rng_state()
        results, states = [], []
        for net in (split, single, serial):
            torch.set_rng_state(before)
            results.append(net(x).detach())
            states.append(torch.get_rng_state())
        assert torch.equal(states[0], states[1]) and torch.equal(states[1], states[2])
        first_rank_same(comm, results[0], results[1], rtol=1e-12, atol=1e-12)  # independent of the split
        torch.testing.assert_close(results[1], results[2])  # independent of the solver
        outputs.append(results[1])
    assert not torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[1], outputs[2])
    if levels > 1:
        assert split.statistics[0].known[-1] < 1e-12  # converged: the mask did not change between sweeps
    weft.reset_tape()


def test_dropout_follows_the_seed(alone: weft.Communicator) -> None:
    layers: list[nn.Module] = [Dropping() for _ in range(4)]
    x = torch.randn(5, 6, dtype=torch.float64)
    results = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        results.append(build(alone, layers, levels=1)(x))
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])


def test_dropout_gradients_match_the_serial_run(comm: weft.Communicator, alone: weft.Communicator) -> None:
    torch.manual_seed(2)
    layers: list[nn.Module] = [Dropping() for _ in range(10)]
    split, serial = build(comm, copy.deepcopy(layers)), build(alone, copy.deepcopy(layers), levels=1)
    x = torch.randn(5, 6, dtype=torch.float64)
    before = torch.get_rng_state()
    weft.backward(split.compose(lambda y: y.square().sum(), split(x)))
    torch.set_rng_state(before)
    serial(x).square().sum().backward()
    for number in split.own:
        for a, b in zip(split.layers[str(number)].parameters(), serial.layers[str(number)].parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("levels", [1, 2])
def test_batch_norm_updates_its_statistics_once(comm: weft.Communicator, levels: int) -> None:
    torch.manual_seed(3)
    layers: list[nn.Module] = [Normed() for _ in range(9)]
    net = build(comm, copy.deepcopy(layers), levels=levels, cfactor=3)
    reference = copy.deepcopy(layers)
    for _ in range(2):
        x = torch.randn(4, 3, 8, 8)
        weft.backward(net.compose(lambda y: y.square().mean(), net(x)))
        y = x
        for layer in reference:
            y = y + 1 / 9 * layer(y)
    for number in net.own:
        mine, other = net.layers[str(number)].norm, reference[number].norm  # type: ignore[union-attr]
        assert mine.num_batches_tracked == other.num_batches_tracked == 2
        torch.testing.assert_close(mine.running_mean, other.running_mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(mine.running_var, other.running_var, rtol=1e-4, atol=1e-5)
    net.eval()
    with torch.no_grad():
        y = net(x)
        expected = x
        for layer in reference:
            expected = expected + 1 / 9 * layer.eval()(expected)
    first_rank_same(comm, y, expected, rtol=1e-4, atol=1e-5)  # coarse steps borrow running statistics too


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW], ids=lambda o: o.__name__)
def test_training_matches_the_serial_run(comm: weft.Communicator, optimizer: type[torch.optim.Optimizer]) -> None:
    torch.manual_seed(4)
    layers: list[nn.Module] = [Block(4) for _ in range(11)]
    opening, closing = nn.Linear(3, 4).double(), nn.Linear(4, 2).double()
    net = build(comm, copy.deepcopy(layers))
    ends = nn.ModuleList(copy.deepcopy([opening, closing])) if comm.rank == 0 else nn.ModuleList()
    serial = nn.ModuleList([opening, *layers, closing])
    steppers = [optimizer([*net.parameters(), *ends.parameters()], lr=0.05), optimizer(serial.parameters(), lr=0.05)]
    generator = torch.Generator().manual_seed(5)
    for _ in range(6):
        x, target = (torch.randn(8, n, dtype=torch.float64, generator=generator) for n in (3, 2))
        for stepper in steppers:
            stepper.zero_grad()
        y = net.compose(lambda y: ends[1](y), net(net.compose(lambda x: ends[0](x), x)))
        loss = net.compose(F.mse_loss, y, target)
        weft.backward(loss)
        mine = weft.clip_grad_norm_([*net.parameters(), *ends.parameters()], 0.5, comm=comm)
        z = opening(x)
        for layer in layers:
            z = z + 1 / 11 * layer(z)
        expected = F.mse_loss(closing(z), target)
        expected.backward()
        norm = nn.utils.clip_grad_norm_(serial.parameters(), 0.5)
        torch.testing.assert_close(mine.item(), norm.item())
        first_rank_same(comm, loss.detach(), expected.detach())
        for stepper in steppers:
            stepper.step()
    for number in net.own:
        torch.testing.assert_close(list(net.layers[str(number)].parameters()), list(layers[number].parameters()))


def test_weights_are_sent_only_if_they_changed(comm: weft.Communicator) -> None:
    """Coarse steps across a rank boundary borrow weights; a stale copy would prevent convergence."""
    torch.manual_seed(6)
    layers: list[nn.Module] = [Block(4) for _ in range(16)]
    few = Solve(iterations=2, residual=True, tolerance=0, relative_tolerance=0)
    net = build(comm, layers, cfactor=4, forward=few)
    x = torch.randn(2, 4, dtype=torch.float64)
    with torch.no_grad():
        net(x)
        for layer in layers:
            layer.linear.weight.mul_(3)
        net(x)
        changed = net.statistics[0].residuals
        fresh = build(comm, layers, cfactor=4, forward=few)
        fresh(x)
        assert fresh.statistics[0].residuals == changed


def test_state_dicts_load_on_any_number_of_ranks(comm: weft.Communicator, alone: weft.Communicator) -> None:
    torch.manual_seed(7)
    net = build(comm, [Block(4) for _ in range(10)])
    x = torch.randn(2, 4, dtype=torch.float64)
    full = net.full_state_dict()
    assert len(full) == 20 and set(net.state_dict()) <= set(full)
    with torch.no_grad():
        y = net(x)
        single = build(alone, [Block(4) for _ in range(10)], levels=1)
        assert single.load_state_dict(full).missing_keys == []
        first_rank_same(comm, y, single(x))
        other = build(comm, [Block(4) for _ in range(10)])
        other.load_state_dict(single.state_dict())  # loads the state of one rank on several
        first_rank_same(comm, other(x), y)
        serial = net.serial()
        assert (serial is None) == (comm.rank > 0)
        if serial is not None:
            torch.testing.assert_close(serial(x), y)
            serial.load_state_dict(full)
            assert set(serial.state_dict()) == set(full)
    with pytest.raises(RuntimeError, match="Unexpected"):
        other.load_state_dict({**full, "layers.10.linear.weight": torch.zeros(4, 4)})


def test_dtype_can_change_after_construction(comm: weft.Communicator) -> None:
    torch.manual_seed(8)
    net = build(comm, [Block(4) for _ in range(9)]).float()
    x = torch.randn(2, 4)
    y = net(x)
    assert y.dtype == torch.float32
    weft.backward(net.compose(torch.sum, y))
    net.double()
    weft.backward(net.compose(torch.sum, net(x.double())))


def test_no_state_is_kept_after_backward(comm: weft.Communicator) -> None:
    class Wide(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(x)

    net = build(comm, [Wide() for _ in range(32)], cfactor=4, forward=Solve(iterations=2), backward=Solve(iterations=1))
    x = torch.zeros(1 << 20, requires_grad=True)  # 4 MiB per state
    weft.backward(net.compose(torch.sum, net(x)))
    x.grad = None
    before = resident_bytes()
    y = net(x)
    assert resident_bytes() - before > 30 << 20  # backward needs the states
    weft.backward(net.compose(torch.sum, y))
    del y
    x.grad = None
    assert resident_bytes() - before < 12 << 20, "states are alive: those of one rank would be 40 MiB and more"


def test_many_batches_do_not_grow_memory(comm: weft.Communicator) -> None:
    torch.manual_seed(9)
    few = Solve(iterations=2, residual=False)
    net = build(comm, [Block(16) for _ in range(8)], forward=few, backward=few)
    x = torch.randn(32, 16, dtype=torch.float64)

    def train(batches: int) -> None:
        for _ in range(batches):
            weft.backward(net.compose(torch.sum, net(x)))
            net.zero_grad()

    train(100)
    before = resident_bytes()
    train(1000 if comm.size <= 2 else 200)  # slow with more ranks than cores
    assert resident_bytes() - before < 4 << 20


# ---- errors


class Failing(Block):
    fail = False

    def forward(self, x: Tensor) -> Tensor:
        if self.fail:
            raise ValueError("the layer's own words")
        return super().forward(x)


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("culprit", [0, 5, 9])
def test_a_failing_layer_is_named_on_all_ranks(comm: weft.Communicator, levels: int, culprit: int) -> None:
    torch.manual_seed(10)
    layers: list[nn.Module] = [Failing(4) for _ in range(10)]
    net = build(comm, layers, levels=levels)
    x = torch.randn(2, 4, dtype=torch.float64)
    if levels > 1:
        net(x)  # the first call evaluates all layers to find shapes
        weft.reset_tape()
    layers[culprit].fail = culprit in net.own  # on its owner, not on ranks that borrow its weights
    if comm.size == 1 and levels == 1:
        with pytest.raises(ValueError, match="own words"):  # raised directly
            net(x)
    else:
        owner = int(comm.all_reduce(torch.tensor(comm.rank if culprit in net.own else 0)).item())
        with pytest.raises(weft.LayerError, match=rf"rank {owner},.*layer {culprit} \(Failing\).*own words") as caught:
            net(x)
        assert (type(caught.value.__cause__) is ValueError) == (culprit in net.own)
    layers[culprit].fail = False
    y = net(x)
    weft.backward(net.compose(torch.sum, y))
    _, _, expected = plain_loop(layers, net._forms, net.tf, x)
    first_rank_same(comm, y.detach(), expected.detach())


@pytest.mark.parametrize("levels", [1, 2])
def test_a_failing_backward_reaches_all_ranks(comm: weft.Communicator, levels: int) -> None:
    class Trap(torch.autograd.Function):
        armed = False

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:  # type: ignore[override]
            if Trap.armed:
                raise ValueError("no gradient today")
            return g

    class Trapped(Block):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(Trap.apply(x))

    torch.manual_seed(11)
    net = build(comm, [Trapped(4) for _ in range(9)], levels=levels)
    x = torch.randn(2, 4, dtype=torch.float64)
    last = comm.size - 1
    y = net(x)
    Trap.armed = comm.rank == last
    if comm.size > 1:
        with pytest.raises(weft.LayerError, match=f"rank {last},.*no gradient today"):
            weft.backward(net.compose(torch.sum, y))
    else:
        with pytest.raises((ValueError, weft.LayerError), match="no gradient today"):
            weft.backward(net.compose(torch.sum, y))
    Trap.armed = False
    weft.reset_tape()
    weft.backward(net.compose(torch.sum, net(x)))


class Growing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, x], -1)


def test_shapes_that_change_work_on_one_level(comm: weft.Communicator) -> None:
    torch.manual_seed(12)
    layers: list[nn.Module] = [Block(4), Growing(), Block(8), Block(8), Growing(), Block(16)]
    net = build(comm, layers, levels=1, form="plain")
    x = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    y = net(x)
    assert y.shape == (2, 16)
    weft.backward(net.compose(torch.sum, y))
    copies, leaf, expected = plain_loop(layers, net._forms, net.tf, x.detach())
    expected.sum().backward()
    first_rank_same(comm, y, expected)
    if comm.rank == 0:
        torch.testing.assert_close(x.grad, leaf.grad)
    for number in net.own:
        for a, b in zip(net.layers[str(number)].parameters(), copies[number].parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad)


def test_shapes_that_change_inside_a_coarse_step_are_rejected(comm: weft.Communicator) -> None:
    """A coarse step would skip the change, so the network raises before the solve."""
    layers: list[nn.Module] = [*(Block(4) for _ in range(5)), Growing(), *(Block(8) for _ in range(4))]
    net = build(comm, layers, form="plain")
    with pytest.raises(RuntimeError, match=r"layers 4 to 5 return a state .*\[2, 8\].* must be at multiples of 2"):
        net(torch.randn(2, 4, dtype=torch.float64))


def test_shapes_that_change_between_coarse_steps_work(comm: weft.Communicator) -> None:
    torch.manual_seed(13)
    layers: list[nn.Module] = [*(Block(4) for _ in range(4)), Growing(), *(Block(8) for _ in range(5))]
    net = build(comm, layers, form="plain")
    x = torch.randn(2, 4, dtype=torch.float64)
    y = net(x)
    weft.backward(net.compose(torch.sum, y))
    copies, _, expected = plain_loop(layers, net._forms, net.tf, x)
    expected.sum().backward()
    first_rank_same(comm, y.detach(), expected.detach())
    for number in net.own:
        for a, b in zip(net.layers[str(number)].parameters(), copies[number].parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"form": "euler"}, "form"),
        ({"form": ["residual"] * 3}, "form"),
        ({"steps": 7}, "omit steps"),
        ({"forward": {"iterations": 0}}, "iterations"),
        ({"forward": {"cycle": "W"}}, "cycle"),
        ({"backward": {"guess": torch.ones}}, "only the forward solve"),
        ({"levels": 0}, "levels"),
        ({"cfactor": 1}, "factor"),
    ],
    ids=str,
)
def test_invalid_options_raise(comm: weft.Communicator, given: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        solves = {k: Solve(**v) for k, v in given.items() if isinstance(v, dict)}
        build(comm, [Block(4) for _ in range(8)], **{**given, **solves})


def test_invalid_inputs_and_layers_raise(comm: weft.Communicator) -> None:
    net = build(comm, [Block(4) for _ in range(8)])
    with pytest.raises(RuntimeError, match="an input"):
        net(None)
    with pytest.raises(RuntimeError, match="floating-point or complex"):
        net(torch.ones(2, 4, dtype=torch.long))
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        build(comm, [torch.tanh] * 3)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="copied"):
        copy.deepcopy(net)


def test_second_derivatives_and_second_backward_raise(comm: weft.Communicator) -> None:
    net = build(comm, [Block(4) for _ in range(8)])
    x = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    loss = net.compose(torch.sum, net(x))
    comm.barrier()  # a rank that fails in backward interrupts the ranks that are still in forward
    with pytest.raises(RuntimeError, match="second derivatives"):
        weft.backward(loss, create_graph=True)
    weft.reset_tape()


def test_debug_names_where_a_nan_appears(tmp_path: Path) -> None:
    if weft.world().rank > 0:
        return
    program = """
from torch import nn
class Poisoned(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number
    def forward(self, x):
        return x / 0 - x / 0 if self.number == 6 and x.abs().sum() > 0 else x
net = weft.LayerParallel(weft.world(), [Poisoned(k) for k in range(12)], levels=2, cfactor=3)
try:
    net(torch.ones(2))
except weft.LayerError as error:
    print(f"[{weft.world().rank}] {error}", flush=True)
"""
    status, text, _ = jobs.run(tmp_path, program, 3, WEFT_DEBUG="1")
    assert status == 0, text
    for rank in range(3):
        assert f"[{rank}] multigrid: step failed on rank 1, level 0, step 6: the result is not finite" in text, text
