"""The functions of torchbraid.mgopt that scripts without multigrid optimization use; the rest is unsupported."""

from __future__ import annotations

import math

__all__ = ["compute_levels", "root_print"]


def compute_levels(num_steps: int, min_coarse_size: int, cfactor: int) -> int:
    """Returns the number of levels whose coarsest one has at least ``min_coarse_size`` steps; at least 1."""
    return max(1, math.floor(math.log(num_steps / min_coarse_size, cfactor)) + 1)


def root_print(rank: int, printlevel_cutoff: int, importance: int, s: object) -> None:
    """Prints on rank 0 if the message is at least as important as the level; smaller numbers are more important."""
    if rank == 0 and importance <= printlevel_cutoff:
        print(s, flush=True)
