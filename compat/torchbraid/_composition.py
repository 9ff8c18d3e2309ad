"""comp_op: serial layers around a split network, run on rank 0 only."""

from collections.abc import Callable
from typing import Any

from weft.layer_parallel import zero_joined_to


class Composition:
    """Calls what it is given on rank 0. Elsewhere nothing is called: a class gives None, anything else a zero.

    The zero's graph reaches the arguments, so that backward passes from it meet in the network on all ranks.
    """

    def __init__(self, rank: int) -> None:
        self._on_root = rank == 0

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._on_root:
            return function(*args, **kwargs)
        return None if isinstance(function, type) else zero_joined_to((args, kwargs))
