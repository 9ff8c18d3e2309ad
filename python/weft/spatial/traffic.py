"""Predicts the communication of layers by watching their operations on meta tensors. Sends nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_EXCHANGES = {torch.ops.weft.halo_exchange.default, torch.ops.weft.halo_accumulate.default}
_COLLECTIVES = {torch.ops.weft.all_reduce.default, torch.ops.weft.all_gather.default}


@dataclass
class Traffic:
    """Communication of a layer's forward pass on this rank."""

    halo_bytes: int = 0  # received from other ranks' tiles
    reduced_bytes: int = 0  # put into reductions over all ranks
    exchanges: int = 0


class TrafficWatch(TorchDispatchMode):
    """Counts the communication of operations in ``traffic`` while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.traffic = Traffic()

    def __enter__(self) -> TrafficWatch:
        torch.ops.weft.enter_shapes_only()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch.ops.weft.leave_shapes_only()

    def __torch_dispatch__(
        self, function: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if function in _EXCHANGES:
            x, plan = args[0], args[1]
            leading = x.shape[: x.dim() - plan.dims()]
            self.traffic.halo_bytes += plan.cells_received() * math.prod(leading) * x.element_size()
            self.traffic.exchanges += int(plan.communicates())
        elif function in _COLLECTIVES:
            self.traffic.reduced_bytes += args[0].numel() * args[0].element_size()
        return function(*args, **(kwargs or {}))
