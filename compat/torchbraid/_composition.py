"""comp_op: serial layers before and after a distributed network, which run on rank 0 only."""

from collections.abc import Callable
from typing import Any

from weft.layer_parallel import zero_joined_to


class Composition:
    """Calls a function on rank 0. On other ranks, returns None for a class and a zero for other functions.

    The graph of the zero contains the arguments, so that all ranks take part in the backward pass of the network.
    """

    def __init__(self, rank: int) -> None:
        self._on_root = rank == 0

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._on_root:
            return function(*args, **kwargs)
        return None if isinstance(function, type) else zero_joined_to((args, kwargs))
