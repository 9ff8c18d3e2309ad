"""Agreement of all ranks on the arguments of a forward pass."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _objects
from ..communicator import Communicator
from .solver import Batch


def agree(
    comm: Communicator | None, name: str, facts_of: Callable[[], dict[str, Any]], problem: str, x: Any,
    initial: Sequence[Tensor] | None, lengths: Tensor | None, wants_grad: bool,
) -> tuple[Batch, list[Tensor] | None]:  # fmt: skip
    """Collective. Checks the arguments on all ranks.

    Args:
        name: the class of the network.
        facts_of: returns values that must be equal on all ranks, by name.
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

    facts = facts_of()
    shapes = None if problem or initial is None else [tuple(state.shape) for state in initial]
    limits = None if problem or lengths is None else lengths.tolist()
    count = 0 if problem else x.size(0)
    # Digests suffice if all arguments fit, and are exchanged much faster than the arguments.
    digests = [_digest(facts), _digest(limits), _digest(shapes)]
    with torch.no_grad():
        table = comm.all_gather(torch.tensor([[bool(problem), *digests, count, wants_grad]])).tolist()
    if any(row[0] or row[1:4] != table[0][1:4] for row in table):
        shapes = _shapes_of_first(comm, name, facts, problem, shapes, limits)
    steps = tuple(row[4] for row in table)
    offset = sum(steps[: comm.rank])
    if lengths is not None:
        _check_lengths(name, lengths, sum(steps))
        lengths = (lengths.to("cpu", torch.int64) - offset).clamp(0, x.size(0)).contiguous()
    batch = Batch(x, steps, offset, lengths, any(row[5] for row in table))
    if shapes is None:
        return batch, None
    # In backward, rank 0 gets the gradient of the initial state from the ranks that use it.
    given = initial if initial is not None else [x.new_zeros(shape) for shape in shapes]
    return batch, [comm.broadcast(state) for state in given]


def _check_lengths(name: str, lengths: Tensor, steps: int) -> None:
    for row, length in enumerate(lengths.tolist()):
        if not 0 <= length <= steps:
            raise ValueError(
                f"weft: {name}: the length of row {row} must be in [0, {steps}], the steps of all ranks, got {length}"
            )


def _digest(value: Any) -> int:
    """Returns a number below 2^56 that differs between values with different texts."""
    return int.from_bytes(hashlib.blake2b(repr(value).encode(), digest_size=7).digest(), "big")


Shapes = list[tuple[int, ...]]


def _shapes_of_first(
    comm: Communicator, name: str, facts: dict[str, Any], problem: str, shapes: Shapes | None, limits: list[int] | None
) -> Shapes | None:
    """Collective. Compares the arguments of all ranks. Returns the shapes of rank 0's initial state.

    Raises ValueError on all ranks if the arguments do not fit; a rank other than 0 may omit the initial state.
    """
    everyone = _objects.all_gather(comm, (problem, facts, shapes, limits))
    for rank, (theirs, *_) in enumerate(everyone):
        if theirs:
            raise ValueError(f"weft: {name}: {theirs} (rank {rank})")
    for key in facts:
        values = [entry[1][key] for entry in everyone]
        if any(value != values[0] for value in values):
            listed = ", ".join(f"rank {rank}: {value}" for rank, value in enumerate(values))
            raise ValueError(f"weft: {name}: {key} differs between ranks ({listed})")
    if any(entry[3] != everyone[0][3] for entry in everyone):
        raise ValueError(f"weft: {name}: lengths differ between ranks; pass those of the whole rows")
    everywhere = [entry[2] for entry in everyone]
    if everywhere[0] is None and any(each is not None for each in everywhere):
        raise ValueError(f"weft: {name}: an initial state is given on some ranks, but not on rank 0")
    if any(each is not None and each != everywhere[0] for each in everywhere):
        raise ValueError(f"weft: {name}: the shapes of the initial states differ between ranks: {everywhere}")
    return everywhere[0]
