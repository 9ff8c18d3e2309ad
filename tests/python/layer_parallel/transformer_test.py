"""Blocks of transformers: torch's layers, plain loops, masks, dropout, buffers and errors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from layer_parallel.networks import plain_loop, same_gradients
from torch import Tensor, nn

import weft
from weft import LayerParallel, PerSample, Solve
from weft.layer_parallel import BufferedNetwork, DecoderBlock, Dropout, EncoderBlock

WIDTH, HEADS, SAMPLES, LENGTH, MEMORY = 8, 2, 5, 6, 4
COUNT = 10
CONVERGED = Solve(iterations=COUNT, tolerance=0, relative_tolerance=1e-13)
SOLVERS: dict[str, dict[str, Any]] = {
    "pipeline": {"solver": "pipeline", "micro_batches": 3},
    "mgrit": {"levels": 2, "cfactor": 2, "forward": CONVERGED, "backward": CONVERGED},
}
TOLERANCE = {"pipeline": {"rtol": 1e-12, "atol": 1e-13}, "mgrit": {"rtol": 1e-9, "atol": 1e-10}}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(3)


@pytest.fixture(scope="module")
def alone(comm: weft.Communicator) -> weft.Communicator:
    """A communicator of this rank only."""
    single = comm.split(comm.rank)
    assert single is not None
    return single


def state(length: int = LENGTH, seed: int = 7) -> Tensor:
    return torch.randn(SAMPLES, length, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def padding(length: int = LENGTH) -> Tensor:
    """Sample i has i padded positions, but at most length - 1."""
    return torch.stack([torch.arange(length) >= length - min(i, length - 1) for i in range(SAMPLES)])


def blocks(kind: type[EncoderBlock], count: int = COUNT, dropout: float = 0.0, **options: Any) -> list[nn.Module]:
    made: list[nn.Module] = [
        kind(WIDTH, HEADS, 12, dropout, "gelu", dtype=torch.float64, **options) for _ in range(count)
    ]
    with torch.no_grad():
        for block in made:
            for parameter in block.parameters():  # norms and biases differ from their initial values, too
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return made


# ---- a block


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masks", ["none", "boolean", "additive", "padding"])
def test_encoder_block_equals_torchs_layer(masks: str, causal: bool) -> None:
    block = blocks(EncoderBlock, 1, causal=causal)[0]
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 12, 0.0, "gelu", batch_first=True, norm_first=True, dtype=torch.float64
    )
    layer.load_state_dict(block.state_dict())
    given: dict[str, Any] = {}
    if masks == "boolean":
        given["src_mask"] = torch.rand(LENGTH, LENGTH).gt(0.7).fill_diagonal_(False)
    elif masks == "additive":
        given["src_mask"] = torch.randn(LENGTH, LENGTH, dtype=torch.float64)
    elif masks == "padding":
        given["src_key_padding_mask"] = padding()
    expected_masks = dict(given)
    if causal:
        later = torch.ones(LENGTH, LENGTH).triu(1).bool()
        other = given.get("src_mask", torch.zeros_like(later))
        expected_masks["src_mask"] = (
            other | later if other.dtype == torch.bool else other.masked_fill(later, -torch.inf)
        )
    x = state()
    y, expected = x + block(x, **given), layer(x, **expected_masks)
    y.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-13)
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(block.get_parameter(name).grad, parameter.grad, rtol=1e-11, atol=1e-12)


def test_decoder_block_equals_torchs_layer() -> None:
    block = blocks(DecoderBlock, 1)[0]
    layer = nn.TransformerDecoderLayer(
        WIDTH, HEADS, 12, 0.0, "gelu", batch_first=True, norm_first=True, dtype=torch.float64
    )
    layer.load_state_dict(block.state_dict())
    x, memory = state(), state(MEMORY, 8)
    masks = {
        "memory_mask": torch.rand(LENGTH, MEMORY).gt(0.8),
        "tgt_key_padding_mask": padding(),
        "memory_key_padding_mask": padding(MEMORY),
    }
    masks["memory_mask"][:, 0] = False
    later = torch.ones(LENGTH, LENGTH).triu(1).bool()
    y, expected = x + block(x, memory, **masks), layer(x, memory, tgt_mask=later, **masks)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-13)


def test_dropout_in_attention_drops_a_fraction_of_the_weights() -> None:
    block = EncoderBlock(WIDTH, HEADS, 12, 0.4)
    for name in ("dropout", "dropout1", "dropout2"):
        getattr(block, name).p = 0.0
    x = torch.randn(64, 30, WIDTH)
    block.self_attn.dropout.p = 0.4
    dropped = torch.stack([block(x) for _ in range(30)]).mean(0)
    different = block(x)
    block.eval()
    assert not torch.allclose(different, block(x), atol=1e-3)
    torch.testing.assert_close(dropped.mean(), block(x).mean(), rtol=0, atol=0.02)


# ---- networks


def arguments(kind: type[EncoderBlock]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns arguments with a row per sample, and others."""
    if kind is EncoderBlock:
        return {"src_key_padding_mask": padding()}, {"src_mask": torch.randn(LENGTH, LENGTH, dtype=torch.float64)}
    return {"tgt_key_padding_mask": padding(), "memory_key_padding_mask": padding(MEMORY)}, {}


@pytest.mark.parametrize("kind", [EncoderBlock, DecoderBlock])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("replicated", [False, True])
def test_networks_equal_the_plain_loop(
    comm: weft.Communicator, solver: str, kind: type[EncoderBlock], replicated: bool
) -> None:
    layers = blocks(kind, causal=True)
    net = LayerParallel(comm, layers, tf=3.0, replicated=replicated, **SOLVERS[solver])
    rows, whole = arguments(kind)
    given: dict[str, Any] = {**{key: PerSample(value) for key, value in rows.items()}, **whole}
    encoder = nn.Linear(WIDTH, WIDTH).double()
    reference = copy.deepcopy(encoder)
    x = state().requires_grad_()
    if kind is DecoderBlock:
        given["memory"] = PerSample(net.side_input(net.compose(encoder, state(MEMORY, 8))))
    y = net(x, **given)
    weft.backward(net.compose(lambda y: y.square().sum(), y))

    extras = {**rows, **whole}
    if kind is DecoderBlock:
        extras["memory"] = reference(state(MEMORY, 8))
    copies = list(copy.deepcopy(nn.ModuleList(layers)))
    leaf = state().requires_grad_()
    expected = leaf
    for layer in copies:
        layer.zero_grad()
        expected = expected + 3.0 / COUNT * layer(expected, **extras)
    expected.square().sum().backward()
    tolerance = TOLERANCE[solver]
    for number in net.own:
        same_gradients(net.layers[str(number)], copies[number], **tolerance)
    if comm.rank == 0 or replicated:
        torch.testing.assert_close(y, expected, **tolerance)
        torch.testing.assert_close(x.grad, leaf.grad, **tolerance)
        if kind is DecoderBlock:
            same_gradients(encoder, reference, **tolerance)


@pytest.mark.parametrize("solver", SOLVERS)
def test_encoder_and_decoder_networks_train_together(comm: weft.Communicator, solver: str) -> None:
    """The memory is the output of another network, and the loss is computed per micro-batch."""
    encoder_layers, decoder_layers = blocks(EncoderBlock, 6), blocks(DecoderBlock, 7)
    encoder = LayerParallel(comm, encoder_layers, **SOLVERS[solver])
    decoder = LayerParallel(comm, decoder_layers, **SOLVERS[solver])
    memory = decoder.side_input(encoder(state(MEMORY, 8)))
    target = state(LENGTH, 9)
    weft.backward(decoder.loss(F.mse_loss, state(), target, memory=PerSample(memory)))
    first, _, made = plain_loop(encoder_layers, ["residual"] * 6, 1.0, state(MEMORY, 8))
    second, _, y = plain_loop(decoder_layers, ["residual"] * 7, 1.0, state(), made)
    F.mse_loss(y, target).backward()
    for net, copies in ((encoder, first), (decoder, second)):
        for number in net.own:
            same_gradients(net.layers[str(number)], copies[number], **TOLERANCE[solver])


# ---- buffers


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("ends", [(2, 1), (0, 3), (1, 0)])
@pytest.mark.parametrize("by_loss", [False, True])
def test_buffered_networks_equal_the_plain_loop(
    comm: weft.Communicator, solver: str, ends: tuple[int, int], by_loss: bool
) -> None:
    layers = blocks(EncoderBlock)
    net = BufferedNetwork(comm, layers, opening=ends[0], closing=ends[1], tf=2.0, **SOLVERS[solver])
    assert net.middle.total_layers == COUNT - sum(ends)
    x, target = state().requires_grad_(), state(LENGTH, 9)
    given = {"src_key_padding_mask": PerSample(padding())}
    if by_loss:
        loss = net.loss(F.mse_loss, x, target, **given)
    else:
        loss = net.middle.compose(F.mse_loss, net(x, **given), target)
    weft.backward(loss)
    copies, leaf, y = plain_loop(layers, ["residual"] * COUNT, 2.0, state(), None, padding())
    expected = F.mse_loss(y, target)
    expected.backward()
    tolerance = TOLERANCE[solver]
    for number in net.middle.own:
        same_gradients(net.middle.layers[str(number)], copies[ends[0] + number], **tolerance)
    assert (len(net.opening.layers), len(net.closing.layers)) == (ends if comm.rank == 0 else (0, 0))
    if comm.rank == 0:
        torch.testing.assert_close(loss, expected, **tolerance)
        torch.testing.assert_close(x.grad, leaf.grad, **tolerance)
        for end, first in ((net.opening, 0), (net.closing, COUNT - ends[1])):
            for number, layer in end.layers.items():
                same_gradients(layer, copies[first + int(number)], **tolerance)


def test_states_of_buffered_networks_load_on_any_number_of_ranks(
    comm: weft.Communicator, alone: weft.Communicator
) -> None:
    def make(group: weft.Communicator) -> BufferedNetwork:
        return BufferedNetwork(group, blocks(EncoderBlock, 5), opening=2, closing=1, levels=1)

    net, single, other = make(comm), make(alone), make(comm)
    state_of_all = net.full_state_dict()
    assert state_of_all.keys() == single.state_dict().keys()
    single.load_state_dict(state_of_all)
    other.load_state_dict(state_of_all)
    with torch.no_grad():
        y, mine, alike = single(state()), net(state()), other(state())
    if comm.rank == 0:
        torch.testing.assert_close(mine, y, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(alike, y, rtol=1e-12, atol=1e-13)


def test_buffers_leave_layers_for_the_middle(comm: weft.Communicator) -> None:
    with pytest.raises(ValueError, match="got 2 and 2 of 4 layers"):
        BufferedNetwork(comm, blocks(EncoderBlock, 4), opening=2, closing=2)
    BufferedNetwork(comm, blocks(EncoderBlock, 4), opening=2, closing=1)


# ---- dropout


def trained(net: Any, seed: int = 16) -> tuple[Tensor, list[Tensor]]:
    """Returns the losses and, in the order of the layers, the gradients of two passes."""
    torch.manual_seed(seed)
    losses = []
    for _ in range(2):
        loss = net.loss(F.mse_loss, state(), state(LENGTH, 9))
        weft.backward(loss)
        losses.append(loss.detach())
    return torch.stack(losses), [parameter.grad for parameter in net.parameters()]


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("options", [*SOLVERS.values(), {"solver": "pipeline"}], ids=[*SOLVERS, "default"])
def test_masks_depend_neither_on_the_split_nor_on_the_micro_batches(
    comm: weft.Communicator, alone: weft.Communicator, options: dict[str, Any], buffered: bool
) -> None:
    layers = blocks(EncoderBlock, dropout=0.3)

    def make(group: weft.Communicator, **options: Any) -> Any:
        if buffered:
            return BufferedNetwork(group, copy.deepcopy(layers), opening=2, closing=1, **options)
        return LayerParallel(group, copy.deepcopy(layers), **options)

    net, whole = make(comm, **options), make(alone, levels=1)
    mine, expected = trained(net), trained(whole)
    if comm.rank == 0:
        torch.testing.assert_close(mine[0], expected[0], rtol=1e-9, atol=1e-10)
        assert mine[0][0] != mine[0][1]  # the second pass has other masks
    reference = dict(whole.named_parameters())
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(parameter.grad, reference[name].grad, rtol=1e-8, atol=1e-9)
    net.eval()
    with torch.no_grad():
        first, second = (net.loss(F.mse_loss, state(), state(LENGTH, 9)) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_samples_have_different_masks(comm: weft.Communicator) -> None:
    class Ones(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Dropout(0.5), Dropout(0.25)

        def forward(self, x: Tensor) -> Tensor:
            return self.first(torch.ones_like(x)) + 300 * self.second(torch.ones_like(x))

    net = LayerParallel(comm, [Ones()], form="plain", solver="pipeline", micro_batches=4)
    with torch.no_grad():
        y = net(torch.zeros(8, 5000))
    if comm.rank != 0:
        return
    first, second = y % 100 > 1, y > 100
    assert first.double().mean(1).sub(0.5).abs().max() < 0.05
    assert second.double().mean(1).sub(0.75).abs().max() < 0.05
    agreement = [(a == b).double().mean() for i, a in enumerate(first) for b in first[i + 1 :]]
    assert max(abs(value - 0.5) for value in agreement) < 0.05
    assert ((first == second).double().mean() - 0.5).abs() < 0.05


def test_random_numbers_of_the_loss_do_not_depend_on_the_split(
    comm: weft.Communicator, alone: weft.Communicator
) -> None:
    layers = blocks(EncoderBlock, 4)

    def loss_of(y: Tensor) -> Tensor:
        return F.dropout(y, 0.5).square().mean()

    losses = []
    for group in (comm, alone):
        net = LayerParallel(group, copy.deepcopy(layers), solver="pipeline", micro_batches=2)
        torch.manual_seed(5)
        losses.append([net.loss(loss_of, state()).detach() for _ in range(2)])
        weft.reset_tape()
    if comm.rank == 0:
        torch.testing.assert_close(*losses)
        assert losses[0][0] != losses[0][1]


# ---- errors


def memory(*shape: int) -> PerSample:
    return PerSample(torch.zeros(*shape, dtype=torch.float64))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("kind", "given", "text"),
    [
        (EncoderBlock, lambda: {"src_mask": torch.zeros(3, 3)}, r"mask to have the shape \(6, 6\) or .* got \(3, 3\)"),
        (EncoderBlock, lambda: {"src_mask": torch.zeros(6, 6).int()}, "the mask to be boolean or floating-point"),
        (
            EncoderBlock,
            lambda: {"src_key_padding_mask": PerSample(torch.zeros(SAMPLES, 4).bool())},
            r"padding mask to have the shape .*, 6\) .*got \(\d, 4\)",
        ),
        (DecoderBlock, lambda: {"memory": memory(SAMPLES, 4, 3)}, r"\(samples, positions, 8\), got \(\d, 4, 3\)"),
        (DecoderBlock, lambda: {"memory": torch.zeros(2, 4, 8).double()}, "the memory has 2 samples.*PerSample"),
        (DecoderBlock, dict, "missing 1 required positional argument: 'memory'"),
    ],
    ids=["mask", "dtype", "padding", "width", "samples", "memory"],
)
def test_wrong_arguments_raise_on_every_rank(
    comm: weft.Communicator,
    works_afterwards: None,
    solver: str,
    kind: type[EncoderBlock],
    given: Callable[[], dict[str, Any]],
    text: str,
) -> None:
    net = LayerParallel(comm, blocks(kind, 4), **SOLVERS[solver])
    with pytest.raises(Exception, match=text) as raised:
        net(state(), **given())
    assert comm.size == 1 or isinstance(raised.value, weft.LayerError)
    weft.reset_tape()
    right = {} if kind is EncoderBlock else {"memory": memory(SAMPLES, 4, WIDTH)}
    with torch.no_grad():
        assert net(state(), **right).shape == (SAMPLES, LENGTH, WIDTH)


def test_states_of_the_wrong_shape_raise(comm: weft.Communicator, works_afterwards: None) -> None:
    net = LayerParallel(comm, blocks(EncoderBlock, 4), solver="pipeline", micro_batches=1)
    with pytest.raises(Exception, match=r"the state to have the shape \(samples, positions, 8\), got \(5, 6\)"):
        net(torch.zeros(5, 6, dtype=torch.float64))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [((8, 3), "multiple of the heads, got 8 and 3"), ((8, 2, 4, 0.0, "magic"), "activation to be one of")],
)
def test_wrong_sizes(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        EncoderBlock(*arguments)
