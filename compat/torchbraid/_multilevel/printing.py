"""Progress messages and options."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


def root_print(rank: int, printlevel_cutoff: int, importance: int, s: object) -> None:
    """Prints on rank 0 if the message is at least as important as the level; smaller numbers are more important."""
    if rank == 0 and importance <= printlevel_cutoff:
        print(s, flush=True)


def compute_levels(num_steps: int, min_coarse_size: int, cfactor: int) -> int:
    """Returns the number of levels whose coarsest one has at least ``min_coarse_size`` steps; at least 1."""
    return max(1, math.floor(math.log(num_steps / min_coarse_size, cfactor)) + 1)


def unpack_arg(v: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the name and the arguments of an option: a name, or a tuple of both."""
    return v if isinstance(v, tuple) else (v, {})


def check_has_args(arg_dict: dict[str, Any], list_to_check: Iterable[str], method: str) -> None:
    """Raises ValueError if an argument of an option is missing."""
    for name in list_to_check:
        if name not in arg_dict:
            raise ValueError(f"torchbraid (weft): the option {method!r} needs the argument {name!r}")
