"""Random networks through the pipeline equal a plain loop to rounding error.

A failure prints its seed. WEFT_NETWORKS sets the number of networks.
"""

from __future__ import annotations

import itertools
import os
import random
from dataclasses import dataclass
from typing import Any

import torch
from layer_parallel.networks import Block, Pair, Stepped, plain_loop, same_gradients
from torch import Tensor, nn

import weft
from weft import LayerParallel

NETWORKS = int(os.environ.get("WEFT_NETWORKS", "40"))


class Reshape(nn.Module):
    """Changes the width of the state, and its type if `dtype` differs."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.linear = nn.Linear(before, after, bias=False).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()


class Scaled(Block):
    def forward(self, x: Tensor, factor: Tensor | None = None) -> Tensor:  # type: ignore[override]
        y = super().forward(x)
        return y if factor is None else y * factor


@dataclass
class Network:
    layers: list[nn.Module]
    forms: list[str]
    x: Any
    extras: tuple[Tensor, ...]
    options: dict[str, Any]
    dtype: torch.dtype
    direct_loss: bool


def generate(seed: int) -> Network:
    choose = random.Random(seed)
    torch.manual_seed(seed)
    rows, width, count = choose.randint(1, 9), choose.randint(1, 5), choose.randint(1, 12)
    x: Any = torch.randn(rows, width, dtype=torch.float64)
    extras: tuple[Tensor, ...] = ()
    kind = choose.choice(["dense", "pair", "stepped", "reshape", "shared", "extra"])
    forms = ["residual"] * count
    if kind == "pair":
        layers: list[nn.Module] = [Pair(width) for _ in range(count)]
        x = (x, torch.randn(rows, width, dtype=torch.float64))
    elif kind == "stepped":
        layers, forms = [Stepped(width) for _ in range(count)], ["step"] * count
    elif kind == "reshape":
        widths = [width, *(choose.randint(1, 5) for _ in range(count))]
        layers, forms = [Reshape(a, b) for a, b in itertools.pairwise(widths)], ["plain"] * count
    elif kind == "shared":
        shared = [Block(width) for _ in range(choose.randint(1, 3))]
        layers = [choose.choice(shared) for _ in range(count)]
    elif kind == "extra":
        layers = [Scaled(width) for _ in range(count)]
        extras = (torch.rand(width, dtype=torch.float64, requires_grad=True),)
    else:
        layers = [Block(width) for _ in range(count)]
    dtype = choose.choice([torch.float64, torch.float64, torch.float32])
    for layer in layers:
        layer.to(dtype)
    x = tuple(t.to(dtype) for t in x) if isinstance(x, tuple) else x.to(dtype)
    extras = tuple(t.detach().to(dtype).requires_grad_() for t in extras)
    options = {
        "micro_batches": choose.choice([None, 1, rows, choose.randint(1, rows)]),
        "replicated": choose.random() < 0.2,
        "tf": choose.choice([0.5, 1.5]),
    }
    return Network(layers, forms, x, extras, options, dtype, choose.random() < 0.5)


def energy(y: Any) -> Tensor:
    parts = (y,) if isinstance(y, Tensor) else y
    return torch.stack([(p.square() * torch.linspace(0.5, 1.5, p.shape[1], dtype=p.dtype)).sum() for p in parts]).sum()


def check(comm: weft.Communicator, network: Network) -> None:
    tolerance = {"rtol": 1e-10, "atol": 1e-12} if network.dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    net = LayerParallel(comm, network.layers, form=network.forms, solver="pipeline", **network.options)
    x = network.x
    leaf = tuple(t.clone().requires_grad_() for t in x) if isinstance(x, tuple) else x.clone().requires_grad_()
    extras = [t.detach().requires_grad_() for t in network.extras]
    expected_extras = [t.detach().requires_grad_() for t in network.extras]
    copies, expected_leaf, expected = plain_loop(
        network.layers, network.forms, network.options["tf"], x, *expected_extras
    )
    expected_loss = energy(expected)
    expected_loss.backward()
    if network.direct_loss:
        names = {"factor": extras[0]} if extras else {}
        loss = net.loss(energy, leaf, reduction="sum", **names)
    else:
        y = net(leaf, *extras)
        loss = net.compose(energy, y)
        if comm.rank == 0 or net.replicated:
            torch.testing.assert_close(y, expected, **tolerance)
    weft.backward(loss)
    if comm.rank == 0 or net.replicated:
        torch.testing.assert_close(loss, expected_loss, **tolerance)
        for mine, other in zip(*((t,) if isinstance(t, Tensor) else t for t in (leaf, expected_leaf)), strict=True):
            torch.testing.assert_close(mine.grad, other.grad, **tolerance)
    for number in net.own:
        same_gradients(net.layers[str(number)], copies[number], **tolerance)
    for mine, other in zip(extras, expected_extras, strict=True):
        part = torch.zeros_like(other) if mine.grad is None else mine.grad
        with torch.no_grad():
            torch.testing.assert_close(comm.all_reduce(part), other.grad, **tolerance)


def test_random_networks_equal_the_plain_loop(comm: weft.Communicator) -> None:
    for seed in range(NETWORKS):
        try:
            check(comm, generate(seed))
        except Exception:
            print(f"seed {seed} on {comm.size} ranks", flush=True)
            raise
