"""Exact solvers: the pieces of a sequence one after the other, for the whole batch or as a pipeline of chunks."""

from __future__ import annotations

import torch
from torch import Tensor

from ..communicator import Communicator
from .failure import raise_shared
from .recurrence import Recurrence, State


def run_chain(
    recurrence: Recurrence,
    x: Tensor,
    initial: State,
    lengths: Tensor | None,
    reverse: bool,
    comm: Communicator | None,
    chunks: int = 1,
) -> tuple[Tensor, State]:
    """Runs the recurrence over the pieces of all ranks. Collective and differentiable.

    Chunks of the batch travel through the ranks, so that ranks compute at the same time; one chunk is the serial order.
    Returns the outputs of this rank's steps, and the final state on every rank. Raises LayerError on all ranks if a
    cell fails.
    """
    if comm is None or comm.size == 1:
        try:
            return recurrence.run(x, initial, lengths, reverse)
        except Exception as failure:
            if recurrence.fallible:
                raise_shared(None, recurrence.name, failure)
            raise
    rank, last = (comm.size - 1 - comm.rank, 0) if reverse else (comm.rank, comm.size - 1)
    step = -1 if reverse else 1
    outputs = []
    finals = []
    sends = []
    error: Exception | None = None
    # Slices would have gradients of the size of the whole batch; the parts of a split have one gradient together.
    pieces = x.chunk(chunks, dim=1)
    sizes = [piece.size(1) for piece in pieces]
    limits = [None] * len(pieces) if lengths is None else lengths.split(sizes)
    states = zip(*(h.split(sizes) for h in initial), strict=True)
    for piece, state, limit in zip(pieces, states, limits, strict=True):
        if rank > 0:
            received = comm.recv(like=recurrence.join(state), source=comm.rank - step)
            state = recurrence.split(received)
        try:
            y, state = recurrence.run(piece, state, limit, reverse)
        except Exception as failure:
            if not recurrence.fallible:
                raise
            # The other ranks wait for this one, so it continues to send messages and reports the failure at the end.
            error = error or failure
            y = x.new_zeros(x.size(0), piece.size(1), recurrence.widths[0])
        message = recurrence.join(state)
        if comm.rank != last:
            sends.append(comm.isend(message, dest=comm.rank + step))
        outputs.append(y)
        finals.append(message)
    for send in sends:
        send.wait()
    if recurrence.fallible:
        with torch.no_grad():
            failed = comm.all_reduce(torch.tensor(float(error is not None)), "max")
        if failed:
            raise_shared(comm, recurrence.name, error)
    final = comm.broadcast(torch.cat(finals), root=last)
    return torch.cat(outputs, dim=1), recurrence.split(final)
