"""In-network aggregation: what a process group of the backend `sml` has done.

torch.distributed.init_process_group("sml")      # with a weft-switch running: docs/aggregation.md
weft.sml.statistics()
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from . import _bindings

__all__ = ["statistics"]


def statistics(group: dist.ProcessGroup | None = None) -> dict[str, int]:
    """How often which way was taken, by this rank: ``switch.all_reduce``, ``fallback.<operation>`` and, of sums that
    could not take the switch, ``fallback.all_reduce.<reason>``; and the packets of the finished sums."""
    chosen = group if group is not None else dist.group.WORLD
    if chosen is None:
        raise ValueError("weft: there is no process group; call torch.distributed.init_process_group('sml') first")
    backend = chosen._get_backend(torch.device("cpu"))
    return dict(_bindings.load().sml_statistics(backend))
