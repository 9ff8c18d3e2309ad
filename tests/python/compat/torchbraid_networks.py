"""Layers, networks and plain loops for the tests of the torchbraid drop-in."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torchbraid
from mpi4py import MPI
from torch import Tensor, nn

comm = MPI.COMM_WORLD
RANK, SIZE = comm.Get_rank(), comm.Get_size()
SEED = 20

Block = Callable[[], nn.Module]


class Dense(nn.Module):
    """A step of a dense network."""

    def __init__(self, width: int = 4, dtype: torch.dtype = torch.double) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


def network(blocks: Block | Sequence[Block], steps: int | Sequence[int], Tf: float = 1.0, **options: Any) -> Any:
    """Creates a network from the seed; its coarsest level does not solve the problem exactly."""
    torch.manual_seed(SEED)
    made = torchbraid.LayerParallel(comm, blocks, steps, Tf, **options)
    made.setSkipDowncycle(False)
    return made


class Loop(nn.Module):
    """The layers that network() creates, as a plain loop."""

    def __init__(self, blocks: Block | Sequence[Block], steps: int | Sequence[int], Tf: float = 1.0) -> None:
        super().__init__()
        counts = list(steps) if isinstance(steps, Sequence) else [steps]
        makers = list(blocks) if isinstance(blocks, Sequence) else [blocks]
        torch.manual_seed(SEED)
        self.layers = nn.ModuleList()
        self.residual: list[bool] = []
        for maker, count in zip(makers, counts, strict=True):
            self.layers.extend(maker() for _ in range(count))
            self.residual += [count > 1] * count
        self.dt = Tf / len(self.layers)
        self.states: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.states = [x]
        for layer, residual in zip(self.layers, self.residual, strict=True):
            x = x + self.dt * layer(x) if residual else layer(x)
            self.states.append(x)
        return x


def owned(layers: int, rank: int = RANK) -> range:
    """Returns the layers of a rank: a balanced partition, the first ranks have more."""
    edges = [sum(layers // SIZE + (r < layers % SIZE) for r in range(end)) for end in range(SIZE + 1)]
    return range(edges[rank], edges[rank + 1])


def assert_same_pass(parallel: Any, loop: Loop, x: Tensor, tolerance: float = 1e-12, **kwargs: Any) -> None:
    """Compares output, input gradient and weight gradients of a forward and a backward pass."""
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected = loop(theirs)
    weights = torch.cos(torch.arange(expected.numel(), dtype=x.dtype)).view_as(expected)
    y = parallel(mine, **kwargs)
    close = {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(y.detach(), expected.detach() if RANK == 0 else torch.zeros_like(expected), **close)
    parallel.zero_grad()
    loop.zero_grad()
    y.backward(weights if RANK == 0 else torch.full_like(weights, float("nan")))  # only the gradient of rank 0 is used
    expected.backward(weights)
    if RANK == 0:
        torch.testing.assert_close(mine.grad, theirs.grad, **close)
    for number, layer in zip(owned(len(loop.layers)), parallel.layer_models, strict=True):
        for got, wanted in zip(layer.parameters(), loop.layers[number].parameters(), strict=True):
            torch.testing.assert_close(got.grad, wanted.grad, **close)
