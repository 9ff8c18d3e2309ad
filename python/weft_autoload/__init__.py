"""Registers weft's backends during `import torch`. weft itself loads when a backend is used.

This is a separate package because importing a module of ``weft`` would load the C++ library and MPI.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

# Variables that MPI launchers set: Open MPI, PMIx, MPICH's Hydra, srun.
LAUNCHER_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE", "PMI_RANK", "SLURM_PROCID")
ENV_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
HOW_TO_START = (
    "Backend 'weft' does not need these variables; start the job with `mpirun -n 4 python train.py` or "
    "`srun -n 4 python train.py`."
)


def register() -> None:
    """The entry point. Errors must not break `import torch` for programs that do not use weft; `import weft` raises
    them."""
    with suppress(Exception):
        register_or_raise()


def register_or_raise() -> None:
    """Registers the backends and the rendezvous. Idempotent."""
    _register_backend()
    _register_rendezvous()


def _register_backend() -> None:
    import torch
    from torch.distributed import Backend

    devices = ["cpu", "cuda"] if torch.version.cuda else ["cpu"]
    for name, factory in (("weft", _create), ("sml", _create_sml)):
        if name.upper() not in Backend._plugins:
            Backend.register_backend(name, factory, extended_api=True, devices=devices)


def _create(options: Any, backend_options: Any) -> Any:
    from weft import _process_group

    return _process_group.create(options)


def _create_sml(options: Any, backend_options: Any) -> Any:
    from weft import _sml

    return _sml.create(options)


def _register_rendezvous() -> None:
    """Lets `env://`, the default of init_process_group, take rank, size and rendezvous from MPI if its variables are
    not set and it would fail. If they are set, nothing changes for any backend."""
    handlers = import_module("torch.distributed.rendezvous")._rendezvous_handlers
    original = handlers["env"]
    if getattr(original, "by_weft", False):
        return

    def env(url: str, timeout: timedelta = timedelta(minutes=30), **arguments: Any) -> Iterator[tuple[Store, int, int]]:
        if all(os.environ.get(name) for name in ENV_VARIABLES):
            return original(url, timeout=timeout, **arguments)
        if any(name in os.environ for name in LAUNCHER_VARIABLES):
            from weft import _process_group

            return _process_group.rendezvous(url, timeout)
        return _explained(original(url, timeout=timeout, **arguments))

    env.by_weft = True  # type: ignore[attr-defined]
    handlers["env"] = env


def _explained(attempt: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from attempt
    except ValueError as error:
        raise ValueError(f"{error}. {HOW_TO_START}") from None
