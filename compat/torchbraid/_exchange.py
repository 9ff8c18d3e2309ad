"""Broadcasts a tensor whose shape only the root knows."""

import torch

import weft
from weft import _objects


@torch.no_grad()
def from_root(comm: weft.Communicator, value: torch.Tensor | None) -> torch.Tensor:
    """Collective. Returns the root's tensor on every rank. Raises TypeError if it is not a tensor."""
    like = None
    if comm.rank == 0:
        like = (value.shape, value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__
    like = _objects.all_gather(comm, like)[0]
    if isinstance(like, str):
        raise TypeError(f"torchbraid (weft): expected a tensor on rank 0, got {like}")
    if comm.rank == 0:
        assert value is not None
        comm.broadcast(value.detach(), root=0)
        return value
    return comm.broadcast(torch.empty(like[0], dtype=like[1]), root=0)
