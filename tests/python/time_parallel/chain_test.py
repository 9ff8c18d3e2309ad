"""The exact solvers: division of the batch into chunks, and reuse of memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from weft.time_parallel.gru import GruRecurrence

import weft

ROWS = 5


def results(solver: str, monkeypatch: pytest.MonkeyPatch, lengths: Tensor | None, **options: Any) -> Any:
    """Returns the sizes of the chunks that this rank computed, and the outputs and gradients."""
    comm = weft.world()
    sizes: list[int] = []
    run = GruRecurrence.run

    def counted(self: GruRecurrence, x: Tensor, state: Any, limit: Tensor | None, reverse: bool) -> Any:
        sizes.append(x.size(1))
        assert limit is None or limit.size(0) == x.size(1)
        assert state[0].size(0) == x.size(1)
        return run(self, x, state, limit, reverse)

    with monkeypatch.context() as patch:
        patch.setattr(GruRecurrence, "run", counted)
        torch.manual_seed(0)
        net = weft.GRU(3, 4, dtype=torch.float64, comm=comm, solver=solver, bidirectional=True, **options)
        whole = torch.randn(3 * comm.size, ROWS, 3, dtype=torch.float64)
        y, h = net(whole.chunk(comm.size)[comm.rank], lengths=lengths)
        weft.backward((y * y).sum() + h.sum() / comm.size)
    return sizes, [y, h, *(weight.grad for weight in net.parameters())]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("chunks", [1, 2, 3, 4, 5, 8])
def test_chunks_cover_the_batch(chunks: int, masked: bool, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    lengths = torch.tensor([3 * size, 1, 0, size, 2]) if masked else None
    sizes, found = results("pipeline", monkeypatch, lengths, chunks=chunks)
    _, expected = results("serial", monkeypatch, lengths)
    if size == 1:
        assert sizes == [ROWS, ROWS]  # one process has nothing to split
    else:
        each = -(-ROWS // min(chunks, ROWS))
        forward = [min(each, ROWS - first) for first in range(0, ROWS, each)]
        assert sizes == [*forward, *forward]  # both directions
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_chunks_of_an_empty_batch() -> None:
    net = weft.GRU(3, 4, comm=weft.world(), solver="pipeline", chunks=4)
    y, h = net(torch.zeros(2, 0, 3))
    assert y.shape == (2, 0, 4) and h.shape == (1, 0, 4)
    weft.backward(y.sum())


@pytest.mark.parametrize("solver", ["serial", "pipeline"])
def test_passes_reuse_memory(solver: str) -> None:
    comm = weft.world()
    net = weft.GRU(16, 16, comm=comm, solver=solver, chunks=2)
    x = torch.randn(64, 8, 16)

    def allocations() -> int:
        y, _ = net(x)
        weft.backward(y.sum())
        return weft.memory.statistics().misses

    allocations()
    warm = allocations()
    assert allocations() == warm
    assert weft.memory.statistics().hits > 0
