"""The torch.distributed backend `weft`: its rendezvous and the factory that torch calls."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlparse

import torch
from torch._C._distributed_c10d import Store, TCPStore

from . import _bindings
from .communicator import Communicator, world

_ADDRESS_BYTES = 256


def create(options: Any) -> Any:
    """Collective over the group. Returns a c10d backend for it; `options` is torch's _DistributedBackendOptions."""
    world()  # registers the exit handler that finalizes MPI
    return _bindings.load().create_process_group(options)


def rendezvous(url: str, timeout: timedelta) -> Iterator[tuple[Store, int, int]]:
    """Collective over all ranks. Yields a store for torch, on a free port of rank 0, and MPI's rank and size.

    Raises ValueError if ``url`` contains another rank or size, and RuntimeError on a second rendezvous.
    """
    comm = world()
    _require_mpi_ranks(url, comm)
    store = open_store(comm, timeout)
    yield store, comm.rank, comm.size
    raise RuntimeError("weft: backend 'weft' does not support elastic restarts; its ranks are those of the MPI job")


def _require_mpi_ranks(url: str, comm: Communicator) -> None:
    asked = parse_qs(urlparse(url).query)
    for name, value in (("rank", comm.rank), ("world_size", comm.size)):
        if name in asked and int(asked[name][0]) != value:
            raise ValueError(
                f"weft: init_process_group: {name}={asked[name][0]} differs from MPI's {name} {value}; omit it"
            )


def open_store(comm: Communicator, timeout: timedelta) -> Store:
    """Collective. Returns a store that all ranks share, on a free port of rank 0."""
    address = torch.zeros(_ADDRESS_BYTES, dtype=torch.uint8)
    store: Store | None = None
    on_one_host = comm.split_shared().size == comm.size
    if comm.rank == 0:
        host = "127.0.0.1" if on_one_host else socket.gethostname()
        master = TCPStore(host, 0, comm.size, is_master=True, timeout=timeout, wait_for_workers=False)
        store = master
        text = f"{host} {master.port}".encode()
        address[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    address = comm.broadcast(address, root=0)
    if store is None:
        host, port = bytes(address.tolist()).rstrip(b"\0").decode().split()
        store = TCPStore(host, int(port), comm.size, is_master=False, timeout=timeout, wait_for_workers=False)
    comm.barrier()
    return store
