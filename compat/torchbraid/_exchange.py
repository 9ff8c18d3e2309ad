"""Python objects between ranks, for reports and the like; through weft, whose waits end."""

import pickle
from typing import Any

import torch

import weft


def _to_bytes(value: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)


def _from_bytes(data: torch.Tensor) -> Any:
    return pickle.loads(data.numpy().tobytes())


@torch.no_grad()
def all_gather(comm: weft.Communicator, value: Any) -> list[Any]:
    """Collective. Every rank's object, in rank order."""
    data = _to_bytes(value)
    sizes = comm.all_gather(torch.tensor([data.numel()]))
    return [_from_bytes(piece) for piece in comm.all_gather(data).split(sizes.tolist())]


@torch.no_grad()
def gather(comm: weft.Communicator, value: Any) -> list[Any]:
    """Collective. Every rank's object, in rank order, on rank 0; elsewhere nothing."""
    data = _to_bytes(value)
    sizes = comm.all_gather(torch.tensor([data.numel()]))
    gathered = comm.gather(data, root=0)
    return [_from_bytes(piece) for piece in gathered.split(sizes.tolist())] if comm.rank == 0 else []


@torch.no_grad()
def from_root(comm: weft.Communicator, value: torch.Tensor | None) -> torch.Tensor:
    """Collective. The root's tensor on every rank; the others need not have one."""
    like = None
    if comm.rank == 0:
        like = (value.shape, value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__
    like = all_gather(comm, like)[0]
    if isinstance(like, str):
        raise TypeError(f"torchbraid (weft): expected a tensor on rank 0, got {like}")
    if comm.rank == 0:
        assert value is not None
        comm.broadcast(value.detach(), root=0)
        return value
    return comm.broadcast(torch.empty(like[0], dtype=like[1]), root=0)
