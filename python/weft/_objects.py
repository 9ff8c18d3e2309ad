"""Collectives for Python objects, which are pickled; for state and reports, not for hot paths."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import Tensor

from .communicator import Communicator


@torch.no_grad()
def all_gather(comm: Communicator, value: Any) -> list[Any]:
    """Collective. Returns the objects of all ranks, in rank order."""
    data = _to_bytes(value)
    sizes = comm.all_gather(torch.tensor([data.numel()]))
    return _split(comm.all_gather(data), sizes)


@torch.no_grad()
def gather(comm: Communicator, value: Any) -> list[Any]:
    """Collective. Returns the objects of all ranks, in rank order, on rank 0; an empty list on other ranks."""
    data = _to_bytes(value)
    sizes = comm.all_gather(torch.tensor([data.numel()]))
    gathered = comm.gather(data, root=0)
    return _split(gathered, sizes) if comm.rank == 0 else []


def _to_bytes(value: Any) -> Tensor:
    file = io.BytesIO()
    torch.save(value, file)
    return torch.frombuffer(bytearray(file.getbuffer()), dtype=torch.uint8)


def _split(data: Tensor, sizes: Tensor) -> list[Any]:
    pieces = data.split(sizes.tolist())
    return [torch.load(io.BytesIO(piece.numpy().tobytes()), weights_only=False) for piece in pieces]
