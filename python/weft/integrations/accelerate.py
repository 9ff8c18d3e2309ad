"""Lets Accelerate use the backend weft on CPUs: import this module before you create an Accelerator.

Accelerate accepts only "mpi" and "gloo" there. The import changes accelerate.PartialState for this process; programs
that select other backends are not affected.
"""

from __future__ import annotations

import inspect
import os
import socket
from typing import Any

from weft import _objects
from weft.communicator import Communicator, world

from ._packages import changed, require

_state = require("accelerate", "accelerate.state")
_INSTEAD = "call torch.distributed.init_process_group('weft') before you create the Accelerator"


def install() -> None:
    """Called by the import. Idempotent."""
    state = _state.PartialState
    if getattr(state, "_with_weft", False):
        return
    create = state.__init__
    prepare = getattr(state, "_prepare_backend", None)
    if prepare is None or list(inspect.signature(prepare).parameters) != ["self", "cpu", "sagemaker_dp", "backend"]:
        raise changed("accelerate", "PartialState._prepare_backend has other parameters", _INSTEAD)

    def __init__(self: Any, cpu: bool = False, **options: Any) -> None:
        if options.get("backend") == "weft" and not self.initialized:
            if world().size == 1:
                del options["backend"]  # Accelerate's form of a job without communication
            else:
                _set_variables(world())
        create(self, cpu, **options)

    def _prepare_backend(self: Any, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None) -> Any:
        selected, kind = prepare(self, cpu, sagemaker_dp, backend)
        if backend == "weft" and kind == _state.DistributedType.NO:
            raise ValueError(
                "weft: Accelerate uses the CPU only if asked to: pass Accelerator(cpu=True) or "
                "TrainingArguments(use_cpu=True)"
            )
        if backend == "weft" and kind == _state.DistributedType.MULTI_CPU:
            selected = "weft"
        return selected, kind

    state.__init__ = __init__
    state._prepare_backend = _prepare_backend
    state._with_weft = True


def _set_variables(comm: Communicator) -> None:
    """Collective. Sets the variables that torchrun would set, from MPI. Accelerate itself knows some launchers only."""
    local = comm.split_shared()
    host, port = _address(comm)
    os.environ.update(
        RANK=str(comm.rank),
        WORLD_SIZE=str(comm.size),
        LOCAL_RANK=str(local.rank),
        LOCAL_WORLD_SIZE=str(local.size),
        MASTER_ADDR="127.0.0.1" if local.size == comm.size else host,
        MASTER_PORT=str(port),
    )
    local.free()


def _address(comm: Communicator) -> tuple[str, int]:
    """Collective. Returns rank 0's host and a free port of it."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        mine = socket.gethostname(), listener.getsockname()[1]
    return _objects.all_gather(comm, mine)[0]


install()
