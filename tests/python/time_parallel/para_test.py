"""weft.ParaGRU and weft.ParaLSTM against their equations in torch's operations, with all solvers and splits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from recurrent_reference import flat, split
from torch import Tensor

import weft

CLOSE = {"rtol": 1e-9, "atol": 1e-10}
KINDS = [weft.ParaGRU, weft.ParaLSTM]


def step(kind: int, x: Tensor, state: list[Tensor], a: Tensor) -> list[Tensor]:
    """One step. x: [batch, 3, hidden]."""
    h = state[0]
    if kind == 0:
        z = torch.sigmoid(x[:, 0] + a[0] * h)
        r = torch.sigmoid(x[:, 1] + a[1] * h)
        n = torch.tanh(x[:, 2] + a[2] * r * h)
        return [(1 - z) * h + z * n]
    c = state[1]
    f = torch.sigmoid(x[:, 0] + a[0] * h + a[3] * c)
    g = torch.tanh(x[:, 2] + a[2] * h)
    c = f * c + (1 - f) * g
    o = torch.sigmoid(x[:, 1] + a[1] * h + a[4] * c)
    return [o * torch.tanh(c), c]


def reference(kind: int, net: Any, x: Tensor, initial: list[Tensor], lengths: Tensor | None) -> tuple[Tensor, Any]:
    """The network on the whole sequence, with torch's operations."""
    directions = 2 if net.bidirectional else 1
    finals = []
    for layer in range(net.num_layers):
        outputs = []
        for direction in range(directions):
            suffix = f"_l{layer}{'_reverse' if direction else ''}"
            blocks = getattr(net, f"weight_ih{suffix}")
            weight = torch.stack([torch.block_diag(*gate) for gate in blocks])
            products = torch.einsum("tbi,goi->tbgo", x, weight)
            if net.bias:
                products = products + getattr(net, f"bias{suffix}")
            state = [h[layer * directions + direction] for h in initial]
            ys = [torch.zeros_like(state[0])] * len(x)
            for t in range(len(x))[:: -1 if direction else 1]:
                new = step(kind, products[t], state, getattr(net, f"weight_hh{suffix}"))
                active = torch.ones(x.size(1), 1, dtype=torch.bool) if lengths is None else (lengths > t).unsqueeze(1)
                state = [torch.where(active, n, s) for n, s in zip(new, state, strict=True)]
                ys[t] = torch.where(active, new[0], 0)
            outputs.append(torch.stack(ys))
            finals.append(state)
        x = torch.cat(outputs, dim=2)
    return x, [torch.stack([state[k] for state in finals]) for k in range(len(initial))]


def compare(
    kind: int, steps: int, batch: int, hidden: int, solver: str, seed: int = 0, lengths: Tensor | None = None,
    **options: Any,
) -> Any:  # fmt: skip
    comm = weft.world()
    torch.manual_seed(seed)
    net = KINDS[kind](6, hidden, dtype=torch.float64, comm=comm, solver=solver, **options)
    with torch.no_grad():
        for weight in net.parameters():
            weight += 0.3 * torch.randn_like(weight)
    whole = torch.randn(steps, batch, 6, dtype=torch.float64, requires_grad=True)
    rows = net.num_layers * (2 if net.bidirectional else 1)
    h0 = [torch.randn(rows, batch, hidden, dtype=torch.float64, requires_grad=True) for _ in range(kind + 1)]
    y_all, final_all = reference(kind, net, whole, h0, lengths)
    weights = [torch.randn_like(t) for t in (y_all, *final_all)]
    loss = sum((t * w).sum() for t, w in zip((y_all, *final_all), weights, strict=True))
    expected = torch.autograd.grad(loss, [whole, *h0, *net.parameters()])

    pieces = split(steps, comm.size, seed)
    begin = sum(pieces[: comm.rank])
    mine = slice(begin, begin + pieces[comm.rank])
    x = whole.detach()[mine].clone().requires_grad_()
    leaves = [h.detach().clone().requires_grad_() for h in h0]
    y, final = net(x, leaves[0] if kind == 0 else tuple(leaves), lengths=lengths)
    torch.testing.assert_close(y, y_all[mine].detach(), **CLOSE)
    for h, other in zip(flat(final), final_all, strict=True):
        torch.testing.assert_close(h, other.detach(), **CLOSE)
    loss = (y * weights[0][mine]).sum()
    weft.backward(loss + sum((h * w).sum() / comm.size for h, w in zip(flat(final), weights[1:], strict=True)))
    torch.testing.assert_close(x.grad, expected[0][mine], **CLOSE)
    if comm.rank == 0:
        for leaf, other in zip(leaves, expected[1:], strict=False):
            torch.testing.assert_close(leaf.grad, other, **CLOSE)
    for parameter, other in zip(net.parameters(), expected[1 + len(h0) :], strict=True):
        torch.testing.assert_close(parameter.grad, other, **CLOSE)
    return net


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("solver", ["serial", "pipeline", "newton"])
def test_values_and_gradients(kind: int, solver: str) -> None:
    for steps, batch, hidden in ((1, 1, 1), (9, 3, 5), (60, 4, 33)):
        compare(kind, steps, batch, hidden, solver, seed=steps)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("solver", ["pipeline", "newton"])
def test_heads_layers_directions_and_lengths(kind: int, solver: str) -> None:
    lengths = torch.tensor([11, 4, 0])
    compare(kind, 11, 3, 6, solver, seed=1, lengths=lengths, heads=3, num_layers=2, bidirectional=True)
    compare(kind, 11, 3, 4, solver, seed=2, heads=2, bias=False)


@pytest.mark.parametrize("kind", [0, 1])
def test_newton_converges_quadratically_and_its_adjoint_is_exact(kind: int) -> None:
    net = compare(kind, 150, 2, 8, "newton")
    forward, backward = net.statistics
    assert forward.iterations <= 9
    assert backward.iterations == 1


@pytest.mark.parametrize("kind", [0, 1])
def test_second_derivatives(kind: int) -> None:
    torch.manual_seed(1)
    net = KINDS[kind](2, 3, dtype=torch.float64)

    def gradient(x: Tensor) -> Tensor:
        return torch.autograd.grad(net(x)[0].pow(2).sum(), x, create_graph=True)[0]

    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: net(x)[0], x)
    assert torch.autograd.gradcheck(gradient, x)


def test_heads_must_divide_the_sizes() -> None:
    with pytest.raises(ValueError, match="ParaGRU: 3 heads do not divide the size 4"):
        weft.ParaGRU(6, 4, heads=3)
