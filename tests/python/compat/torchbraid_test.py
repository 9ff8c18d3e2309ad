"""The drop-in torchbraid: arguments, setters, getters and utilities, against plain loops."""

import copy
import math
from typing import Any

import pytest
import torch
import torchbraid
from compat.torchbraid_networks import RANK, SIZE, Dense, Loop, assert_same_pass, comm, network, owned
from torch import Tensor, nn
from torchbraid import utils

pytestmark = pytest.mark.filterwarnings("ignore:weft. the .* solve of LayerParallel did not converge")

STEPS = 13  # not divisible by the number of ranks


def batch(*shape: int, dtype: torch.dtype = torch.double) -> Tensor:
    count = math.prod(shape)
    return torch.linspace(-1, 1, count, dtype=dtype).view(shape)


# Forward and backward


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("skip", [True, False])
def test_matches_a_plain_loop(levels: int, skip: bool) -> None:
    m = network(Dense, STEPS, 2.0, max_fwd_levels=levels, max_bwd_levels=levels, max_iters=12)
    m.setSkipDowncycle(skip)
    assert_same_pass(m, Loop(Dense, STEPS, 2.0), batch(3, 4))


def test_supports_fewer_layers_than_ranks() -> None:
    m = network([Dense, Dense], [1, 1], max_fwd_levels=2, max_bwd_levels=2)
    assert len(m.layer_models) == len(owned(2))
    assert_same_pass(m, Loop([Dense, Dense], [1, 1]), batch(3, 4))


def test_a_single_step_is_a_plain_layer() -> None:
    assert_same_pass(network(Dense, 1), Loop(Dense, 1), batch(3, 4))


def test_supports_empty_batches() -> None:
    m = network(Dense, STEPS, max_fwd_levels=2, max_bwd_levels=2)
    assert_same_pass(m, Loop(Dense, STEPS), batch(0, 4))


def test_nan_propagates() -> None:
    m = network(Dense, STEPS, max_fwd_levels=2, max_bwd_levels=2)
    x = batch(3, 4)
    x[1, 2] = math.nan
    y = m(x)
    if RANK == 0:
        assert y[1].isnan().all()


@pytest.mark.parametrize("levels", [1, 3])
def test_supports_blocks_of_several_kinds_and_shapes(levels: int) -> None:
    blocks = [lambda: nn.MaxPool1d(3), Conv, lambda: nn.MaxPool1d(3), Conv, Conv]
    steps = [1, 7, 1, 3, 4]
    m = network(blocks, steps, max_fwd_levels=levels, max_bwd_levels=levels, max_iters=12)
    assert_same_pass(m, Loop(blocks, steps), batch(2, 3, 10))


def test_a_shape_that_changes_inside_a_coarse_step_is_rejected() -> None:
    m = network([Conv, lambda: nn.MaxPool1d(3), Conv], [3, 1, 4], max_fwd_levels=2, max_bwd_levels=2)
    with pytest.raises(RuntimeError, match=r"layers 2 to 3 return a state .*multiples of 2"):
        m(batch(2, 3, 10))
    assert comm.allreduce(1) == SIZE


def test_shapes_follow_the_batch() -> None:
    m = network(Dense, STEPS, max_fwd_levels=2, max_bwd_levels=2, max_iters=12)
    for size in (3, 5, 1):
        assert_same_pass(m, Loop(Dense, STEPS), batch(size, 4))


def test_an_output_may_be_discarded() -> None:
    m, loop = network(Dense, STEPS, max_fwd_levels=2, max_bwd_levels=2, max_iters=12), Loop(Dense, STEPS)
    m(batch(3, 4))  # with gradients enabled; then the weights change
    with torch.no_grad():
        for parameter in (*m.parameters(), *loop.parameters()):
            parameter.mul_(0.5)
    assert_same_pass(m, loop, batch(3, 4))


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 3, 3, padding=1, dtype=torch.double)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.conv(x))


class Masked(Dense):
    def forward(self, x: Tensor, dt: float, mask: Tensor, scale: float = 1.0) -> Tensor:
        return x + dt * scale * mask * torch.tanh(self.linear(x))


def test_extra_arguments_reach_every_layer() -> None:
    m = network(Masked, STEPS, max_fwd_levels=2, max_bwd_levels=2, max_iters=12)
    loop, x, mask = Loop(Masked, STEPS), batch(3, 4), torch.tensor([1.0, 0.0, 2.0, 0.5], dtype=torch.double)
    y = m(x, mask, scale=0.5)
    for layer in loop.layers:
        x = layer(x, 1 / STEPS, mask, scale=0.5)
    if RANK == 0:
        torch.testing.assert_close(y, x)


class Oscillator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stiffness = nn.Parameter(torch.rand((), dtype=torch.double))

    def forward(self, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        place, speed = state
        return speed, -self.stiffness * place


def test_supports_tuples_as_state() -> None:
    m = network(Oscillator, STEPS, max_fwd_levels=2, max_bwd_levels=2, max_iters=12)
    place, speed = m((batch(3), torch.ones(3, dtype=torch.double)))
    expected = (batch(3), torch.ones(3, dtype=torch.double))
    for layer in Loop(Oscillator, STEPS).layers:
        change = layer(expected)
        expected = tuple(value + rate / STEPS for value, rate in zip(expected, change, strict=True))
    if RANK == 0:
        torch.testing.assert_close(place, expected[0])
        torch.testing.assert_close(speed, expected[1])


def test_spatial_coarsening_does_not_change_the_result() -> None:
    levels_seen = set()

    def coarsen(x: Tensor, level: int) -> Tensor:
        levels_seen.add(level)
        return 0.5 * (x[..., 0::2] + x[..., 1::2])

    def refine(x: Tensor, level: int) -> Tensor:
        return x.repeat_interleave(2, dim=-1)

    m = network(
        Conv,
        12,
        max_fwd_levels=3,
        max_bwd_levels=1,
        max_iters=12,
        spatial_ref_funcs=(coarsen, refine, lambda shape, level: shape),
        levels_to_coarsen=[1],
    )
    m.setNumRelax(1)  # C-relaxation handles errors that coarse grids do not resolve
    assert_same_pass(m, Loop(Conv, 12), batch(2, 3, 8))
    assert levels_seen <= {1}
    assert comm.allreduce(len(levels_seen)) > 0


def test_shared_weights_are_summed() -> None:
    torch.manual_seed(0)
    shared, twin = Dense(), Dense()
    twin.load_state_dict(shared.state_dict())
    m = network(lambda: shared, STEPS, max_fwd_levels=2, max_bwd_levels=2, max_iters=12)
    loop, x = Loop(lambda: twin, STEPS), batch(3, 4)
    m(x).backward(torch.ones_like(x))
    loop(x).sum().backward()
    for got, wanted in zip(shared.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(got.grad, wanted.grad)


# Settings


def test_all_settings_can_be_combined() -> None:
    m = network(Dense, STEPS, 2.0, max_fwd_levels=3, max_bwd_levels=3)
    for name, arguments in SETTINGS:
        assert getattr(m, name)(*arguments) is None, name
    assert m.getFwdMaxIters() == 14 and m.getBwdMaxIters() == 13 and m.getMaxIters() == (14, 13)
    assert_same_pass(m, Loop(Dense, STEPS, 2.0), batch(3, 4), tolerance=1e-9)


SETTINGS: list[tuple[str, tuple[Any, ...]]] = [
    ("setPrintLevel", (0,)),
    ("setPrintLevel", (1, True)),
    ("setNumRelax", (1,)),
    ("setNumRelax", (0, 0)),
    ("setFwdNumRelax", (2, 1)),
    ("setBwdNumRelax", (1, 1)),
    ("setMaxIters", (9,)),
    ("setFwdMaxIters", (14,)),
    ("setBwdMaxIters", (13,)),
    ("setCFactor", (3,)),
    ("setFwdCFactor", ({0: 3, 1: 2},)),
    ("setBwdCFactor", (2,)),
    ("setSkipDowncycle", (True,)),
    ("setSkipFwdDowncycle", (False,)),
    ("setSkipBwdDowncycle", (True,)),
    ("setCRelaxWt", (1.1,)),
    ("setFwdCRelaxWt", (1.0,)),
    ("setBwdCRelaxWt", (1.0,)),
    ("setFwdResidualCompute", (True,)),
    ("setBwdResidualCompute", (False,)),
    ("setFwdRelaxOnlyCG", (0,)),
    ("setBwdRelaxOnlyCG", (False,)),
    ("setFwdFinalFCRelax", ()),
    ("setBwdFinalFCRelax", ()),
    ("setFwdStorage", (0,)),
    ("setBwdStorage", (-1,)),
    ("setMinCoarse", (1,)),
    ("setFMG", ()),
    ("setFwdInitialGuess", (None,)),
    ("startStateCommunication", ()),
    ("endStateCommunication", ()),
]


def test_settings_control_the_solves() -> None:
    m = network(Dense, 16, max_fwd_levels=2, max_bwd_levels=2, max_iters=3)
    x = batch(3, 4)
    m(x).backward(x)
    iterations, residual = m.getFwdStats()
    assert iterations == 3 and residual > 1e-12
    assert m.getBwdStats()[0] == 3
    m.fwd_app.setAbsTol(1e3)
    m.setBwdMaxIters(1)
    m(x).backward(x)
    assert m.getFwdStats()[0] == 1 and m.getBwdStats()[0] == 1
    m.setFwdResidualCompute(False)
    m(x)
    assert m.getFwdStats() == (3, -1.0)


def test_relaxation_lowers_the_residual() -> None:
    residuals = []
    for relaxations in (0, 1):
        m = network(Dense, 16, max_fwd_levels=2, max_bwd_levels=2, max_iters=3)
        m.setNumRelax(relaxations)
        m(batch(3, 4))
        residuals.append(m.getFwdStats()[1])
    assert residuals[1] < residuals[0]


def test_grids_may_change_between_passes() -> None:
    m, loop = network(Dense, STEPS, max_fwd_levels=2, max_bwd_levels=2, max_iters=12), Loop(Dense, STEPS)
    for cfactor in (2, 5, {0: 3}):
        m.setCFactor(cfactor)
        assert_same_pass(m, loop, batch(3, 4))
        with torch.no_grad():
            for parameter in (*m.parameters(), *loop.parameters()):
                parameter -= 0.1 * parameter.grad
    assert m.fwd_app.getFineTimeIndex(tidx=5, level=1) == 15
    assert m.fwd_app.getFineTimeIndex(tidx=5, level=2) == 30


def test_c_point_storage_gives_the_same_result() -> None:
    m = network(Dense, STEPS, max_fwd_levels=2, max_bwd_levels=2, max_iters=12)
    m.setFwdStorage(-1)
    assert_same_pass(m, Loop(Dense, STEPS), batch(3, 4))
    with pytest.raises(RuntimeError, match=r"setFwdStorage\(0\)"):
        m.getFineTimePoints()


class Guess:
    def __init__(self, states: list[Tensor], Tf: float) -> None:
        self.states, self.Tf, self.asked = states, Tf, set()

    def getState(self, time: float) -> Tensor:
        self.asked.add(time)
        return self.states[round(time / self.Tf * (len(self.states) - 1))]


def test_an_exact_initial_guess_needs_no_iterations() -> None:
    loop, x = Loop(Dense, 12, 2.0), batch(3, 4)
    with torch.no_grad():
        loop(x)
    m = network(Dense, 12, 2.0, max_fwd_levels=2, max_bwd_levels=2)
    guess = Guess(loop.states, 2.0)
    m.setFwdInitialGuess(guess)
    m(x)
    assert m.getFwdStats()[0] == 1 and m.getFwdStats()[1] < 1e-12
    everywhere = sorted(set().union(*comm.allgather(guess.asked)))
    assert everywhere == pytest.approx([time / 3 for time in range(1, 7)])  # all C-points except the first
    m.setFwdInitialGuess(None)
    m(x)  # starts from the states of the last pass, as in torchbraid
    assert m.getFwdStats()[0] == 1
    m(-x)
    assert m.getFwdStats()[0] > 1


def test_settings_that_differ_between_ranks_raise_on_all() -> None:
    m = network(Dense, STEPS, max_fwd_levels=2, max_bwd_levels=2)
    m.setFwdMaxIters(2 + RANK)
    if SIZE > 1:
        with pytest.raises(RuntimeError, match="agree"):
            m(batch(3, 4))
    m.setFwdMaxIters(12)
    assert_same_pass(m, Loop(Dense, STEPS), batch(3, 4), tolerance=1e-9)


# Statistics


@pytest.mark.parametrize("levels", [1, 2])
def test_fine_time_points_exist_after_forward(levels: int) -> None:
    m, loop, x = (
        network(Dense, STEPS, 2.0, max_fwd_levels=levels, max_bwd_levels=levels),
        Loop(Dense, STEPS, 2.0),
        batch(3, 4),
    )
    with pytest.raises(RuntimeError, match="forward pass"):
        m.getFineTimePoints()
    y = m(x)
    loop(x)
    times, states = m.getFineTimePoints()
    points = [number + 1 for number in owned(STEPS)]
    points = [0, *points] if RANK == 0 else points
    assert times == pytest.approx([2.0 / STEPS * point for point in points])
    for point, state in zip(points, states, strict=True):
        torch.testing.assert_close(state, loop.states[point].detach(), rtol=1e-9, atol=1e-9)
    y.backward(x)
    with pytest.raises(RuntimeError, match="before its backward"):
        m.getFineTimePoints()


def test_diagnostics_report_norms_of_each_step() -> None:
    m, loop, x = (
        network(Dense, STEPS, max_fwd_levels=2, max_bwd_levels=2, max_iters=12),
        Loop(Dense, STEPS),
        batch(3, 4),
    )
    m.diagnostics(True)
    with torch.no_grad():
        m(x)
        loop(x)
    found = m.getDiagnostics()
    norms = [state.norm().item() for state in loop.states]
    assert found["step_in"] == pytest.approx(norms[:-1]) and found["step_out"] == pytest.approx(norms[1:])
    weights = [[p.norm().item() for p in layer.parameters()] for layer in loop.layers]
    assert torch.tensor(found["params"]).allclose(torch.tensor(weights))


def test_timers_list_all_ranks(capfd: pytest.CaptureFixture[str]) -> None:
    m, x = network(Dense, STEPS, max_fwd_levels=2, max_bwd_levels=2, max_iters=2), batch(3, 4)
    m.setPrintLevel(1)
    m(x).backward(x)
    text = m.getTimersString()
    assert all(f"rank {rank}" in text for rank in range(SIZE))
    assert len(m.getTimerManager().timer("LayerParallel::forward").getTimes()) == 1
    assert len(m.getTimerManager().timer("LayerParallel::backward").getTimes()) == 1
    printed = capfd.readouterr().out
    assert printed.count("residual norm") == (4 if RANK == 0 else 0)


def test_sequential_network_on_root_is_a_copy() -> None:
    m, loop, x = network(Dense, STEPS, 2.0), Loop(Dense, STEPS, 2.0), batch(3, 4)
    serial = m.buildSequentialOnRoot()
    assert (serial is None) == (RANK != 0)
    if serial is not None:
        torch.testing.assert_close(serial(x), loop(x), rtol=0, atol=1e-15)
        with torch.no_grad():
            next(serial.parameters()).zero_()
        assert m.layer_models[0].linear.weight.abs().sum() > 0  # the sequential network is a copy


def test_root_and_communicator() -> None:
    m = network(Dense, STEPS)
    assert m.getMPIComm() is comm
    x = batch(3, 4)
    assert m.getFinalOnRoot(x) is (x if RANK == 0 else None)
    torch.testing.assert_close(m.copyVectorFromRoot(x if RANK == 0 else None), x)
    with pytest.raises(TypeError, match="got NoneType"):
        m.copyVectorFromRoot(None)
    with pytest.raises(TypeError, match="copied"):
        m(x)
        copy.deepcopy(m)


def test_supports_communicators_of_some_ranks() -> None:
    part = comm.Split(color=RANK % 2, key=-RANK)
    torch.manual_seed(3)
    m = torchbraid.LayerParallel(part, Dense, 5, 1.0)
    y = m(batch(3, 4))
    assert len(m.layer_models) == 5 // part.Get_size() + (part.Get_rank() < 5 % part.Get_size())
    if part.Get_rank() == 0:
        x = batch(3, 4)
        torch.manual_seed(3)
        for layer in [Dense() for _ in range(5)]:
            x = x + 0.2 * layer(x)
        torch.testing.assert_close(y, x)
    part.Free()


# Around the network


class Whole(nn.Module):
    """Opening and closing layers on rank 0."""

    def __init__(self) -> None:
        super().__init__()
        self.middle = network(Dense, STEPS, max_fwd_levels=2, max_bwd_levels=2, max_iters=12)
        self.compose = self.middle.comp_op()
        self.opening = self.compose(nn.Linear, 2, 4, dtype=torch.double)
        self.closing = self.compose(nn.Linear, 4, 1, dtype=torch.double)

    def forward(self, x: Tensor) -> Tensor:
        return self.compose(self.closing, self.middle(self.compose(self.opening, x)))


class WholeLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.middle = Loop(Dense, STEPS)
        self.opening, self.closing = nn.Linear(2, 4, dtype=torch.double), nn.Linear(4, 1, dtype=torch.double)

    def forward(self, x: Tensor) -> Tensor:
        return self.closing(self.middle(self.opening(x)))


def test_training_matches_serial_training() -> None:
    net, serial = Whole(), WholeLoop()
    assert (net.opening is None) == (RANK != 0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
    serial_optimizer = torch.optim.SGD(serial.parameters(), lr=0.3, momentum=0.9)
    x, target = batch(5, 2), batch(5, 1).cos()
    for _ in range(4):
        optimizer.zero_grad()
        loss = net.compose(nn.functional.mse_loss, net(x), target) + 0.01 * utils.l2_reg(net, comm)
        loss.backward()
        optimizer.step()
        serial_optimizer.zero_grad()
        serial_loss = nn.functional.mse_loss(serial(x), target) + 0.01 * utils.l2_reg(serial)
        serial_loss.backward()
        serial_optimizer.step()
        if RANK == 0:
            torch.testing.assert_close(loss, serial_loss)
    for number, layer in zip(owned(STEPS), net.middle.layer_models, strict=True):
        for got, wanted in zip(layer.parameters(), serial.middle.layers[number].parameters(), strict=True):
            torch.testing.assert_close(got, wanted)
    if RANK == 0:
        torch.testing.assert_close(net.opening.weight, serial.opening.weight)


def test_state_dict_round_trips() -> None:
    m, x = network(Dense, STEPS, max_fwd_levels=2, max_bwd_levels=2, max_iters=12), batch(3, 4)
    before = m(x).detach()
    saved = {key: value.clone() for key, value in m.state_dict().items()}
    assert set(saved) == {f"layer_models.{i}.linear.{w}" for i in range(len(owned(STEPS))) for w in ("weight", "bias")}
    with torch.no_grad():
        for parameter in m.parameters():
            parameter.zero_()
    m.load_state_dict(saved)
    torch.testing.assert_close(m(x).detach(), before)


# Utilities


def test_l2_reg_is_the_sum_of_squares_on_every_rank() -> None:
    module = nn.Linear(2, 1)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0 + RANK, -2.0]]))
        module.bias.fill_(0.5)
    value = utils.l2_reg(module, comm)
    assert value.item() == pytest.approx(sum((1 + rank) ** 2 + 4 + 0.25 for rank in range(SIZE)), rel=1e-7)
    value.backward()
    torch.testing.assert_close(module.weight.grad, torch.tensor([[2.0 + 2 * RANK, -4.0]]))
    assert utils.l2_reg(nn.Identity()).item() == 0


def test_seeds_differ_between_ranks_and_seeds() -> None:
    seeds = {utils.seed_from_rank(seed, rank) for seed in range(20) for rank in range(20)}
    assert len(seeds) == 400
    torch.manual_seed(max(seeds))


def test_flat_buffers_reject_other_sizes() -> None:
    tensors = [torch.ones(2, 3).t(), torch.ones(0), torch.full((), 4.0)]
    flat = utils.pack_buffer(tensors)
    assert flat.tolist() == [1.0] * 6 + [4.0]
    with pytest.raises(ValueError, match=r"7 elements, got shape \[6\]"):
        utils.unpack_buffer(tensors, flat[:6])


def test_timers_do_not_nest() -> None:
    timer = utils.ContextTimerManager().timer("t")
    with timer, pytest.raises(RuntimeError, match="already running"):
        timer.start()
    assert len(timer.getTimes()) == 1 and not timer.isTiming()


def test_data_parallel_gradients_are_averaged() -> None:
    with pytest.raises(ValueError, match="divides"):
        utils.data_parallel.split_communicator(comm, SIZE + 1)
    data, layers = utils.data_parallel.split_communicator(comm, SIZE)
    assert data.Get_size() == SIZE and layers.Get_size() == 1
    module = nn.Linear(2, 2, bias=True)
    module.weight.grad = torch.full((2, 2), float(RANK + 1))
    utils.data_parallel.average_gradients(module, data)
    assert module.weight.grad.tolist() == [[(SIZE + 1) / 2] * 2] * 2
    assert module.bias.grad.tolist() == [0.0, 0.0]
    data.Free()
    layers.Free()


def test_partitions_hold_every_element_once() -> None:
    state = torch.get_rng_state()
    data = [f"element {i}" for i in range(11)]
    parts = utils.data_parallel.Partioner(data, 3, seed=4, batch_size=2)
    found = [parts.get_partion(rank)[i] for rank in range(3) for i in range(len(parts.get_partion(rank)))]
    assert sorted(found) == sorted(data)
    assert torch.equal(torch.get_rng_state(), state)


def test_host_device_is_the_cpu() -> None:
    device, host = torchbraid.getDevice(comm)
    assert host.type == "cpu" and device.type in ("cpu", "cuda")


# Unsupported arguments


def test_unsupported_arguments_raise_on_every_rank() -> None:
    with pytest.raises(ValueError, match="got 2 splines of degree 2"):
        network(Dense, 4, nsplines=2, splinedegree=2)
    with pytest.raises(ValueError, match="a single block"):
        network([Dense, lambda: Dense()], [2, 2], nsplines=3)
    with pytest.raises(ValueError, match="a list of 2 and one"):
        network([Dense, Dense], 4)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        network([Dense, Dense], [4, 0])
    with pytest.raises(TypeError, match=r"layer 0 to build a torch\.nn\.Module, got int"):
        network(lambda: 3, 4)
    with pytest.raises(ValueError, match="max_levels"):
        network(Dense, 4, max_fwd_levels=0)
    m = network(Dense, 4)
    with pytest.raises(ValueError, match="at least 2, got 1"):
        m.setCFactor({0: 1})
    with pytest.raises(TypeError, match="getState"):
        m.setFwdInitialGuess(3)
    m.setFwdFinalFCRelax(False)  # accepted; the last sweep is always on
    assert network(Dense, 4, user_mpi_buf=not torch.cuda.is_available()) is not None
    assert_same_pass(m, Loop(Dense, 4), batch(3, 4))


# ---- torchbraid's numbers

# Losses of torchbraid (commit 29b42ce) on one rank: the first cycle is complete (its default), or skips the way down.
LOSSES = {
    False: [0.323099, 0.610789, 0.349373, 0.486369],
    True: [4.472266, 0.995153, 0.517323, 2.467239],
}


@pytest.mark.parametrize("skip", [False, True])
def test_unconverged_training_gives_torchbraids_losses(skip: bool) -> None:
    torch.manual_seed(0)
    m = torchbraid.LayerParallel(
        comm, lambda: Dense(2, torch.float32), 10, 10.0, max_fwd_levels=3, max_bwd_levels=3, max_iters=2
    )
    if skip:
        m.setSkipDowncycle(True)
    m.setNumRelax(1)
    m.setNumRelax(0, level=0)
    o = m.comp_op()
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in LOSSES[skip]:
        x = torch.rand(5, 2, generator=generator)
        loss = o(nn.functional.mse_loss, m(x), torch.sin(3 * x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if RANK == 0:
        assert losses == pytest.approx(LOSSES[skip], rel=1e-4)
