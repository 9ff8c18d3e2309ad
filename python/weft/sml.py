"""In-network aggregation: statistics of process groups with the backend `sml`; see docs/aggregation.md."""

from __future__ import annotations

import torch
import torch.distributed as dist

from . import _bindings

__all__ = ["statistics"]


def statistics(group: dist.ProcessGroup | None = None) -> dict[str, int]:
    """Returns this rank's counters: operations that used the switch or the fallback, and packets.

    ``switch.all_reduce`` and ``fallback.<operation>`` count operations; ``fallback.all_reduce.<reason>`` counts sums
    that could not use the switch, by reason.

    Args:
        group: by default the default group.

    Raises ValueError if there is no process group, and RuntimeError if its backend is not `sml`.
    """
    chosen = group if group is not None else dist.group.WORLD
    if chosen is None:
        raise ValueError("weft: no process group; call torch.distributed.init_process_group('sml') first")
    backend = chosen._get_backend(torch.device("cpu"))
    return dict(_bindings.load().sml_statistics(backend))
