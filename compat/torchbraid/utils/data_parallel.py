"""Data parallelism combined with layer parallelism: communicators, partitions of a data set, averaged gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.data import Subset


def split_communicator(comm: Any, splitting: int) -> tuple[Any, Any]:
    """Collective. Returns this rank's data-parallel communicator, with ``splitting`` ranks, and its layer-parallel one.

    Rank r is in the data-parallel group r // splitting and in the layer-parallel group r % splitting.
    """
    rank, size = comm.Get_rank(), comm.Get_size()
    if splitting < 1 or size % splitting != 0:
        raise ValueError(f"torchbraid (weft): expected a splitting that divides {size} ranks, got {splitting}")
    return comm.Split(color=rank // splitting, key=rank), comm.Split(color=rank % splitting, key=rank)


@torch.no_grad()
def average_gradients(model: nn.Module | Iterable[torch.Tensor], comm_dp: Any) -> None:
    """Collective. Replaces gradients by their mean over the ranks of a data-parallel mpi4py communicator.

    All ranks must have the same parameters in the same order; a rank without a gradient counts as zero.
    """
    from mpi4py import MPI

    for parameter in model.parameters() if isinstance(model, nn.Module) else model:
        if not parameter.requires_grad:
            continue
        mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        total = mine.detach().cpu().contiguous().clone()
        comm_dp.Allreduce(MPI.IN_PLACE, total.numpy(), op=MPI.SUM)
        parameter.grad = total.div_(comm_dp.Get_size()).to(parameter)


class Partition(Subset[Any]):
    """torch's Subset under torchbraid's name."""


class Partioner:
    """Shuffles a data set with a seed and distributes it to ``procs`` ranks, one batch at a time."""

    def __init__(self, data: Sequence[Any], procs: int, seed: int = 42, batch_size: int = 1) -> None:
        import numpy  # optional: only this class needs it

        self.data = data
        order = numpy.random.RandomState(seed).permutation(len(data)).tolist()  # independent of the global random state
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        self.partitions: list[list[int]] = [
            [index for batch in batches[rank::procs] for index in batch] for rank in range(procs)
        ]

    def get_partion(self, rank: int) -> Partition:
        return Partition(self.data, self.partitions[rank])  # type: ignore[arg-type]

    get_partition = get_partion
