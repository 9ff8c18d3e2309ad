"""A training step of weft's recurrent networks against torch.nn on the whole sequence."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import weft

CLOSE = {"rtol": 1e-11, "atol": 1e-12}
KINDS = [(weft.GRU, nn.GRU), (weft.LSTM, nn.LSTM)]


def split(total: int, size: int, seed: int) -> list[int]:
    """Returns random numbers of steps per rank with the given total. Some may be zero."""
    draw = random.Random(seed)
    cuts = sorted(draw.randint(0, total) for _ in range(size - 1))
    return [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]


def flat(state: Any) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else list(state)


def compare(
    kind: int, steps: int, batch: int, features: int, hidden: int, comm: weft.Communicator, *, seed: int = 0,
    lengths: Tensor | None = None, solver: str = "pipeline", initial: bool = True, close: dict[str, float] = CLOSE,
    solver_options: dict[str, Any] | None = None, **options: Any,
) -> nn.Module:  # fmt: skip
    """Compares a training step on this rank's piece with torch.nn on the whole sequence. Returns weft's network."""
    ours, theirs = KINDS[kind]
    torch.manual_seed(seed)
    reference = theirs(features, hidden, dtype=torch.float64, **options)
    net = ours(features, hidden, dtype=torch.float64, comm=comm, solver=solver, **(solver_options or {}), **options)
    net.load_state_dict(reference.state_dict())
    whole = torch.randn(steps, batch, features, dtype=torch.float64)
    rows = reference.num_layers * (2 if reference.bidirectional else 1)
    widths = [reference.proj_size or hidden] + ([hidden] if kind == 1 else [])
    h0 = [torch.randn(rows, batch, width, dtype=torch.float64, requires_grad=True) for width in widths]

    # The reference: the whole sequence, packed if there are lengths.
    x_all = whole.clone().requires_grad_()
    given = None if not initial else (h0[0] if kind == 0 else tuple(h0))
    if lengths is None:
        source = x_all.transpose(0, 1) if reference.batch_first else x_all
        y_all, state_all = reference(source, given)
        y_all = y_all.transpose(0, 1) if reference.batch_first else y_all
    else:
        packed, state_all = reference(pack_padded_sequence(x_all, lengths, enforce_sorted=False), given)
        y_all, _ = pad_packed_sequence(packed, total_length=steps)
    weight = torch.randn_like(y_all)
    state_weights = [torch.randn_like(h) for h in flat(state_all)]
    loss = (y_all * weight).sum() + sum((h * w).sum() for h, w in zip(flat(state_all), state_weights, strict=True))
    loss.backward()
    expected_h0 = [h.grad for h in h0]

    pieces = split(steps, comm.size, seed)
    begin = sum(pieces[: comm.rank])
    mine = slice(begin, begin + pieces[comm.rank])
    x = whole[mine].clone().requires_grad_()
    leaves = [h.detach().clone().requires_grad_() for h in h0]
    given = None if not initial else (leaves[0] if kind == 0 else tuple(leaves))
    y, state = net(x.transpose(0, 1) if net.batch_first else x, given, lengths=lengths)
    y = y.transpose(0, 1) if net.batch_first else y
    torch.testing.assert_close(y, y_all[mine].detach(), **close)
    for h, h_all in zip(flat(state), flat(state_all), strict=True):
        torch.testing.assert_close(h, h_all.detach(), **close)
    share = 1 / comm.size  # every rank has the final state; it counts once
    loss = (y * weight[mine]).sum() + sum(
        share * (h * w).sum() for h, w in zip(flat(state), state_weights, strict=True)
    )
    weft.backward(loss)
    torch.testing.assert_close(x.grad, x_all.grad[mine], **close)
    for (name, parameter), other in zip(net.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, **close, msg=lambda text, name=name: f"{name}: {text}")
    if initial and comm.rank == 0:
        for leaf, grad in zip(leaves, expected_h0, strict=True):
            torch.testing.assert_close(leaf.grad, grad, **close)
    return net
