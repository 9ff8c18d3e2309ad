"""weft.GRU and weft.LSTM against torch.nn on the whole sequence: values, states and gradients for all splits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from recurrent_reference import CLOSE, KINDS, compare, split
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import weft


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(("steps", "batch", "hidden"), [(1, 1, 1), (7, 3, 5), (40, 6, 17), (13, 2, 64), (2000, 1, 3)])
def test_values_and_gradients(kind: int, steps: int, batch: int, hidden: int) -> None:
    compare(kind, steps, batch, 4, hidden, weft.world(), seed=steps)


@pytest.mark.parametrize("kind", [0, 1])
def test_layers_directions_bias_and_batch_first(kind: int) -> None:
    options = [
        {"num_layers": 3},
        {"bidirectional": True},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
        {"bias": False, "batch_first": True},
    ]
    for seed, some in enumerate(options):
        compare(kind, 19, 5, 3, 7, weft.world(), seed=seed, **some)


def test_projected_lstm() -> None:
    compare(1, 11, 4, 3, 8, weft.world(), proj_size=3)
    compare(1, 11, 4, 3, 8, weft.world(), proj_size=5, num_layers=2, bidirectional=True)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_lengths(kind: int, bidirectional: bool) -> None:
    lengths = torch.tensor([12, 3, 1, 9, 12])
    compare(kind, 12, 5, 3, 6, weft.world(), seed=3, lengths=lengths, bidirectional=bidirectional, num_layers=2)


@pytest.mark.parametrize("chunks", [1, 2, 5, 100])
def test_every_number_of_chunks_gives_the_same_result(chunks: int) -> None:
    compare(0, 9, 5, 2, 4, weft.world(), solver_options={"chunks": chunks})


@pytest.mark.parametrize("solver", ["serial", "auto"])
def test_solvers(solver: str) -> None:
    compare(0, 16, 6, 3, 5, weft.world(), solver=solver, initial=False)


def test_packed_sequences() -> None:
    torch.manual_seed(2)
    net = weft.GRU(3, 4, dtype=torch.float64, bidirectional=True)
    reference = nn.GRU(3, 4, dtype=torch.float64, bidirectional=True)
    reference.load_state_dict(net.state_dict())
    x = torch.randn(8, 3, 3, dtype=torch.float64)
    packed = pack_padded_sequence(x, torch.tensor([4, 8, 1]), enforce_sorted=False)
    h0 = torch.randn(2, 3, 4, dtype=torch.float64)
    (y, h), (y_all, h_all) = net(packed, h0), reference(packed, h0)
    torch.testing.assert_close(y.data, y_all.data, **CLOSE)
    torch.testing.assert_close(h, h_all, **CLOSE)
    assert y.batch_sizes.tolist() == y_all.batch_sizes.tolist()


def test_unbatched_input() -> None:
    net = weft.LSTM(3, 4, dtype=torch.float64)
    x = torch.randn(5, 3, dtype=torch.float64)
    y, (h, c) = net(x)
    y_all, (_, c_all) = net(x.unsqueeze(1))
    assert y.shape == (5, 4) and h.shape == (1, 4)
    torch.testing.assert_close(y, y_all.squeeze(1))
    torch.testing.assert_close(c, c_all.squeeze(1))


@pytest.mark.parametrize("kind", [0, 1])
def test_second_derivatives(kind: int) -> None:
    torch.manual_seed(4)
    net = KINDS[kind][0](2, 3, dtype=torch.float64)
    reference = KINDS[kind][1](2, 3, dtype=torch.float64)
    reference.load_state_dict(net.state_dict())

    def penalty(module: nn.Module, x: Tensor) -> Tensor:
        y, _ = module(x)
        (g,) = torch.autograd.grad(y.pow(2).sum(), x, create_graph=True)
        return g.pow(2).sum()

    x = torch.randn(4, 2, 2, dtype=torch.float64, requires_grad=True)
    ours = torch.autograd.grad(penalty(net, x), [x, *net.parameters()])
    theirs = torch.autograd.grad(penalty(reference, x), [x, *reference.parameters()])
    torch.testing.assert_close(ours, theirs, **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precision(dtype: torch.dtype) -> None:
    torch.manual_seed(5)
    net = weft.GRU(8, 16, dtype=dtype)
    reference = nn.GRU(8, 16, dtype=torch.float64)
    reference.load_state_dict({name: value.double() for name, value in net.state_dict().items()})
    x = torch.randn(20, 3, 8).to(dtype)
    y, h = net(x)
    assert y.dtype == dtype and h.dtype == dtype
    tolerance = 5e-6 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(y.double(), reference(x.double())[0], rtol=0, atol=tolerance)


def test_nan_propagates_forward_in_time_only() -> None:
    for kind in (weft.GRU, weft.LSTM):
        net = kind(2, 3)
        x = torch.randn(6, 2, 2)
        x[3, 0, 1] = float("nan")
        y, _ = net(x)
        assert not y[:3].isnan().any()
        assert y[3:, 0].isnan().all()
        assert not y[:, 1].isnan().any()


def test_saturated_gates_are_finite() -> None:
    for kind in (weft.GRU, weft.LSTM):
        net = kind(1, 3)
        x = torch.tensor([[[1e30]], [[-1e30]], [[float("inf")]]])
        with torch.no_grad():
            for weight in net.parameters():
                weight.fill_(1.0)
        expected = getattr(nn, kind.__name__)(1, 3)
        expected.load_state_dict(net.state_dict())
        torch.testing.assert_close(net(x)[0], expected(x)[0], equal_nan=True)


def test_dropout_does_not_depend_on_the_split() -> None:
    comm = weft.world()
    outputs = []
    for net_comm in (comm, None):
        torch.manual_seed(6)
        net = weft.GRU(3, 5, num_layers=3, dropout=0.5, dtype=torch.float64, comm=net_comm, solver="pipeline")
        whole = torch.randn(12, 4, 3, dtype=torch.float64)
        torch.manual_seed(7)
        pieces = split(12, comm.size, 1)
        begin = sum(pieces[: comm.rank])
        mine = slice(begin, begin + pieces[comm.rank])
        y, _ = net(whole[mine] if net_comm is not None else whole)
        outputs.append(y if net_comm is not None else y[mine])
    torch.testing.assert_close(outputs[0], outputs[1], **CLOSE)


def test_state_dict_of_torch_loads_in_both_directions() -> None:
    ours = weft.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2)
    theirs = nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())


def test_non_contiguous_input() -> None:
    net = weft.GRU(3, 4, dtype=torch.float64)
    x = torch.randn(3, 7, 2, dtype=torch.float64).permute(1, 2, 0)
    torch.testing.assert_close(net(x)[0], net(x.contiguous())[0], **CLOSE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": 5}, "expected 3 features"),
        ({"dtype": torch.float32}, "expected the weights' dtype torch.float64"),
        ({"lengths": torch.tensor([1])}, "expected 2 integer lengths"),
        ({"h0": (1, 9, 4)}, "expected an initial state of shape"),
    ],
)
def test_bad_input_on_one_rank_raises_on_all(arguments: dict[str, Any], message: str, rank: int, size: int) -> None:
    net = weft.GRU(3, 4, dtype=torch.float64, comm=weft.world())
    bad = arguments if rank == size - 1 else {}
    x = torch.randn(4, 2, bad.get("features", 3), dtype=bad.get("dtype", torch.float64))
    h0 = torch.zeros(bad["h0"], dtype=torch.float64) if "h0" in bad else None
    with pytest.raises(ValueError, match=message):
        net(x, h0, lengths=bad.get("lengths"))
    net(torch.randn(4, 2, 3, dtype=torch.float64))  # the next batch works
    weft.reset_tape()


def test_different_batches_raise_on_all_ranks(rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("needs several ranks")
    net = weft.GRU(3, 4, comm=weft.world())
    with pytest.raises(ValueError, match=r"batch differs between ranks \(rank 0: 2, rank 1: 3"):
        net(torch.randn(4, 2 + rank, 3))


def test_unknown_solver() -> None:
    with pytest.raises(ValueError, match=r"expected solver to be one of auto, serial, .*, got 'magic'"):
        weft.GRU(1, 1, solver="magic")
