"""solver="newton" against torch.nn on the whole sequence: values, states and gradients for all splits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from recurrent_reference import KINDS, compare

import weft

CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def newton(kind: int, steps: int, batch: int, hidden: int, seed: int = 0, jacobian: str = "diagonal", **options: Any):
    return compare(
        kind, steps, batch, 3, hidden, weft.world(), seed=seed, solver="newton", close=CLOSE,
        solver_options={"jacobian": jacobian, "tolerance": 1e-12}, **options,
    )  # fmt: skip


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("jacobian", ["diagonal", "full"])
@pytest.mark.parametrize(("steps", "batch", "hidden"), [(1, 1, 1), (7, 3, 5), (60, 4, 9), (400, 2, 3)])
def test_values_and_gradients(kind: int, jacobian: str, steps: int, batch: int, hidden: int) -> None:
    net = newton(kind, steps, batch, hidden, seed=steps, jacobian=jacobian)
    forward, backward = net.statistics
    assert forward.converged and backward.converged
    assert forward.direction == "forward" and backward.direction == "backward"
    assert len(forward.residuals) == forward.iterations + 1 and forward.residuals[-1] <= 1e-12
    if jacobian == "full":
        assert backward.iterations == 1  # the exact adjoint recurrence


@pytest.mark.parametrize("kind", [0, 1])
def test_long_sequences_and_wide_states(kind: int) -> None:
    newton(kind, 2000, 1, 4)
    newton(kind, 40, 2, 128)


@pytest.mark.parametrize("kind", [0, 1])
def test_layers_directions_and_batch_first(kind: int) -> None:
    for seed, options in enumerate([{"num_layers": 3}, {"bidirectional": True, "batch_first": True}, {"bias": False}]):
        newton(kind, 19, 3, 5, seed=seed, **options)


def test_gradients_with_the_strides_of_batch_first() -> None:
    torch.manual_seed(0)
    rnn = weft.GRU(3, 4, batch_first=True, solver="newton", tolerance=1e-12).double()
    expected = torch.nn.GRU(3, 4, batch_first=True).double()
    expected.load_state_dict(rnn.state_dict())
    x = torch.randn(2, 9, 3, dtype=torch.float64)
    for net in (rnn, expected):
        net(x)[0].square().mean().backward()  # the gradient has the strides of the transposed output
    for found, known in zip(rnn.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(found.grad, known.grad, **CLOSE)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("jacobian", ["diagonal", "full"])
def test_lengths(kind: int, jacobian: str) -> None:
    lengths = torch.tensor([12, 3, 1, 9])
    newton(kind, 12, 4, 4, seed=3, jacobian=jacobian, lengths=lengths, bidirectional=True, num_layers=2)


def piece(rank: int) -> torch.Tensor:
    torch.manual_seed(rank)
    return torch.randn(20 + rank, 2, 3, dtype=torch.float64)


def stiff(**options: Any) -> weft.GRU:
    torch.manual_seed(1)
    net = weft.GRU(3, 8, dtype=torch.float64, comm=weft.world(), **options)
    with torch.no_grad():
        for weight in net.parameters():
            weight *= 4
    return net


def test_not_converged_raises_on_all_ranks(rank: int) -> None:
    net = stiff(solver="newton", max_iterations=2)
    with pytest.raises(weft.NotConverged, match=r"the residual is .* after 2 iterations .*raise max_iterations"):
        net(piece(rank))
    assert not net.statistics[0].converged and net.statistics[0].iterations == 2
    with torch.no_grad():
        for weight in net.parameters():
            weight.zero_()
    net(piece(rank))  # the next batch works
    weft.reset_tape()


def test_falls_back_to_the_serial_solver(rank: int) -> None:
    results = []
    for options in ({"solver": "newton", "max_iterations": 2, "on_divergence": "serial"}, {"solver": "serial"}):
        net = stiff(**options)
        y, h = net(piece(rank))
        weft.backward((y * y).sum() + h.sum() / weft.world().size)
        results.append([y, h, *(weight.grad for weight in net.parameters())])
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-11, atol=1e-12)


def test_the_adjoint_falls_back_to_the_serial_order(rank: int) -> None:
    """The forward solve converges with the full Jacobian of the first pass; the adjoint gets no iterations."""
    results = []
    for limit in (None, 1):
        torch.manual_seed(2)
        net = weft.LSTM(
            3, 4, dtype=torch.float64, comm=weft.world(), solver="newton", on_divergence="serial", bidirectional=True
        )
        y, (h, c) = net(piece(rank))
        if limit is not None:
            limited = net._solver.options
            object.__setattr__(limited, "max_iterations", limit)
        weft.backward((y * y).sum() + (h.sum() + c.sum()) / weft.world().size)
        results.append([weight.grad for weight in net.parameters()])
        assert net.statistics[1].converged == (limit is None)
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, **CLOSE)


def test_an_adjoint_that_does_not_converge_raises_on_all_ranks(rank: int) -> None:
    torch.manual_seed(2)
    net = weft.GRU(3, 4, dtype=torch.float64, comm=weft.world(), solver="newton")
    limited = net._solver.options
    y, _ = net(piece(rank))
    object.__setattr__(limited, "max_iterations", 1)
    with pytest.raises(weft.NotConverged, match=r"the adjoint of Newton's method did not converge: .* 1 iterations"):
        weft.backward(y.sum())
    object.__setattr__(limited, "max_iterations", 100)
    y, _ = net(piece(rank))  # the next batch works
    weft.backward(y.sum())


def test_strong_recurrence_is_damped() -> None:
    """Iterates of an LSTM with large weights overflow without damping."""
    torch.manual_seed(0)
    reference = KINDS[1][1](4, 16, dtype=torch.float64)
    with torch.no_grad():
        for weight in reference.parameters():
            weight *= 4
    net = weft.LSTM(4, 16, dtype=torch.float64, solver="newton")
    net.load_state_dict(reference.state_dict())
    x = torch.randn(300, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(net(x)[0], reference(x)[0], **CLOSE)


def test_nan_in_the_input_raises_on_all_ranks(rank: int, size: int) -> None:
    net = weft.GRU(3, 4, dtype=torch.float64, comm=weft.world(), solver="newton")
    x = piece(rank)
    if rank == size - 1:
        x[3, 0, 1] = float("nan")
    with pytest.raises(weft.NotConverged, match="the input contains NaN or infinity"):
        net(x)
    net(piece(rank))  # the next batch works
    weft.reset_tape()


def test_float32() -> None:
    torch.manual_seed(3)
    net = weft.GRU(8, 16, comm=weft.world(), solver="newton")
    y, _ = net(torch.randn(100, 3, 8))
    assert y.dtype == torch.float32 and net.statistics[0].converged
    weft.backward(y.sum())
    assert net.statistics[1].converged


def test_unsupported_arguments() -> None:
    with pytest.raises(ValueError, match="expected jacobian to be one of diagonal, full, got 'exact'"):
        weft.GRU(1, 1, solver="newton", jacobian="exact")
    with pytest.raises(ValueError, match="expected on_divergence to be one of raise, serial"):
        weft.GRU(1, 1, on_divergence="ignore")
    with pytest.raises(ValueError, match="expected max_iterations to be at least 1, got 0"):
        weft.GRU(1, 1, max_iterations=0)
    with pytest.raises(ValueError, match="does not support proj_size"):
        weft.LSTM(1, 2, proj_size=1, solver="newton")
    with pytest.raises(ValueError, match="computes in float32 or float64"):
        weft.GRU(1, 1, solver="newton", dtype=torch.bfloat16)(torch.zeros(2, 1, 1, dtype=torch.bfloat16))


def test_second_derivatives_raise() -> None:
    net = weft.GRU(2, 3, solver="newton")
    x = torch.randn(4, 1, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="does not support second derivatives"):
        torch.autograd.grad(net(x)[0].sum(), x, create_graph=True)
