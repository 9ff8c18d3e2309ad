"""Agreement of all ranks on the arguments of a forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _objects
from ..communicator import Communicator
from .solver import Batch


def agree(
    comm: Communicator | None, name: str, facts: dict[str, Any], problem: str, x: Any, initial: Sequence[Tensor] | None,
    lengths: Tensor | None, wants_grad: bool,
) -> tuple[Batch, list[Tensor] | None]:  # fmt: skip
    """Collective. Checks the arguments on all ranks.

    Args:
        name: the class of the network.
        facts: values that must be equal on all ranks, by name.
        problem: the reason why this rank's arguments do not fit; empty if they do.
        x: this rank's steps in time-major order. initial: tensors of the initial state.
        lengths: numbers of steps of the rows of the whole sequence.

    Returns the batch and the initial state of rank 0; None if rank 0 has none.
    Raises ValueError on all ranks if the arguments of a rank do not fit.
    """
    if comm is None or comm.size == 1:
        if problem:
            raise ValueError(f"weft: {name}: {problem}")
        if lengths is not None:
            lengths = lengths.to("cpu", torch.int64).contiguous()
            _check_lengths(name, lengths, x.size(0))
        return Batch(x, (x.size(0),), 0, lengths, wants_grad), None if initial is None else list(initial)

    shapes = None if problem or initial is None else [tuple(state.shape) for state in initial]
    mine = (
        problem, facts, 0 if problem else x.size(0), shapes,
        None if problem or lengths is None else lengths.tolist(), wants_grad,
    )  # fmt: skip
    everyone = _objects.all_gather(comm, mine)
    for rank, (theirs, *_) in enumerate(everyone):
        if theirs:
            raise ValueError(f"weft: {name}: {theirs} (rank {rank})")
    for key in facts:
        values = [entry[1][key] for entry in everyone]
        if any(value != values[0] for value in values):
            listed = ", ".join(f"rank {rank}: {value}" for rank, value in enumerate(values))
            raise ValueError(f"weft: {name}: {key} differs between ranks ({listed})")
    steps = tuple(entry[2] for entry in everyone)
    offset = sum(steps[: comm.rank])
    if lengths is not None:
        if any(entry[4] != everyone[0][4] for entry in everyone):
            raise ValueError(f"weft: {name}: lengths differ between ranks; pass those of the whole rows")
        _check_lengths(name, lengths, sum(steps))
        lengths = (lengths.to("cpu", torch.int64) - offset).clamp(0, x.size(0)).contiguous()
    batch = Batch(x, steps, offset, lengths, any(entry[5] for entry in everyone))
    return batch, _initial_of_first(comm, name, x, initial, [entry[3] for entry in everyone])


def _check_lengths(name: str, lengths: Tensor, steps: int) -> None:
    for row, length in enumerate(lengths.tolist()):
        if not 0 <= length <= steps:
            raise ValueError(
                f"weft: {name}: the length of row {row} must be in [0, {steps}], the steps of all ranks, got {length}"
            )


def _initial_of_first(
    comm: Communicator, name: str, x: Tensor, initial: Sequence[Tensor] | None, shapes: list[Any]
) -> list[Tensor] | None:
    if shapes[0] is None:
        if any(shape is not None for shape in shapes):
            raise ValueError(f"weft: {name}: an initial state is given on some ranks, but not on rank 0")
        return None
    if any(shape is not None and shape != shapes[0] for shape in shapes):
        raise ValueError(f"weft: {name}: the shapes of the initial states differ between ranks: {shapes}")
    # In backward, rank 0 gets the gradient of the initial state from the ranks that use it.
    given = initial if initial is not None else [x.new_zeros(shape) for shape in shapes[0]]
    return [comm.broadcast(state) for state in given]
