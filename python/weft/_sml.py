"""The torch.distributed backend `sml`: its fallback backend and the factory that torch calls."""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist
import weft_autoload
from torch._C._distributed_c10d import PrefixStore

from . import _bindings


def create(options: Any) -> Any:
    """Collective over the group. Returns a c10d backend for it; `options` is torch's _DistributedBackendOptions."""
    bindings = _bindings.load()
    fallback = bindings.sml_fallback(options, "mpi" if _started_by_mpi() else "gloo")
    return bindings.create_sml_process_group(options, _open_fallback(fallback, options))


def _started_by_mpi() -> bool:
    """Whether an MPI launcher started this process; torchrun inside a Slurm job inherits Slurm's variables."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return False
    return any(name in os.environ for name in weft_autoload.LAUNCHER_VARIABLES)


def _open_fallback(name: str, options: Any) -> Any:
    if name == "mpi":
        from . import _process_group

        return _process_group.create(options)
    # A store may be reused; the library counts the rendezvous of this rank in it.
    number = options.store.add(f"sml/meetings/{options.group_rank}", 0)
    store = PrefixStore(f"sml/gloo/{number}", options.store)
    return dist.ProcessGroupGloo(store, options.group_rank, options.group_size, timeout=options.timeout)
