"""Sizes and call stacks, for debugging."""

from __future__ import annotations

import gc
import pickle
import traceback
from typing import Any

from torch import Tensor

MIB = 2**20


def tensor_memory(prefix: str, min_size: int = 0, total_only: bool = False) -> None:
    """Prints the sizes of all tensors of this process that have more than ``min_size`` bytes, and their sum."""
    tensors = [item for item in gc.get_objects() if isinstance(item, Tensor)]
    large = [tensor for tensor in tensors if tensor.nbytes > min_size]
    for tensor in [] if total_only else large:
        label = getattr(tensor, "label", "none")
        print(f"  {prefix}) {tensor.nbytes / MIB:.2f} MiB, shape {list(tensor.shape)}, label {label}")
    total, above = (sum(tensor.nbytes for tensor in group) / MIB for group in (tensors, large))
    print(f"  {prefix}) all tensors: {total:.2f} MiB; {len(large)} above the bound: {above:.2f} MiB")


def stack_string(prefix: str | None = None) -> str:
    """Returns the call stack, each line with the prefix."""
    lines = "".join(traceback.format_stack()[:-1]).splitlines()
    return "\n".join((prefix or "") + line for line in lines)


def pickle_size(obj: Any) -> int:
    """Returns the number of bytes of the pickled object."""
    return len(pickle.dumps(obj))
