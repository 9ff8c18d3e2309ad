"""Lets weft serve torch's backend name "mpi"."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch._C._distributed_c10d import PrefixStore, Store, _DistributedBackendOptions
from torch.distributed.distributed_c10d import default_pg_timeout

from . import _process_group
from .communicator import world

_store: Store | None = None


def use_as_mpi_backend() -> None:
    """Makes ``init_process_group("mpi")`` use weft, and ``torch.distributed.is_mpi_available()`` return True.

    Call it before ``init_process_group``; later calls have no effect. PyTorch accepts ``register_backend("mpi", …)``
    but ignores it, because the name is reserved for a class that its wheels lack. This function provides that class.

    Raises RuntimeError if this version of torch creates MPI groups in another way.
    """
    c10d = import_module("torch.distributed.distributed_c10d")
    if not hasattr(c10d, "_MPI_AVAILABLE"):
        raise RuntimeError(
            f"weft: use_as_mpi_backend: torch {torch.__version__} does not define "
            "torch.distributed.distributed_c10d._MPI_AVAILABLE; call init_process_group('weft') instead"
        )
    c10d.ProcessGroupMPI = ProcessGroupMPI  # type: ignore[attr-defined]
    c10d._MPI_AVAILABLE = True  # type: ignore[attr-defined]


class ProcessGroupMPI:
    """The interface that torch expects of the class ProcessGroupMPI."""

    @staticmethod
    def create(ranks: list[int]) -> Any:
        """Collective over ``ranks``; an empty list means all ranks. Returns a c10d backend.

        The first group must contain all ranks.
        """
        comm = world()
        options = _DistributedBackendOptions()
        options.group_rank = ranks.index(comm.rank) if ranks else comm.rank
        options.group_size = len(ranks) or comm.size
        options.global_ranks_in_group = ranks
        options.group_id = f"mpi:{','.join(map(str, ranks)) or 'world'}"
        options.timeout = default_pg_timeout  # torch does not pass the timeout of the call
        options.store = PrefixStore(options.group_id, _shared_store(ranks))
        return _process_group.create(options)


def _shared_store(ranks: list[int]) -> Store:
    """The store in which the members of new groups meet; torch has none for the backend "mpi"."""
    global _store
    if _store is None:
        if ranks and len(ranks) != world().size:
            raise RuntimeError(
                f"weft: the first group with backend 'mpi' must contain all {world().size} ranks, got {ranks}; "
                "call init_process_group('mpi') first"
            )
        _store = _process_group.open_store(world(), default_pg_timeout)
    return _store
