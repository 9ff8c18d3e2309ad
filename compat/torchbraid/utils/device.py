"""Selects the device of a rank."""

from typing import Any

import torch


def getDevice(comm: Any) -> tuple[torch.device, torch.device]:
    """Collective. Returns (device, host): one GPU per rank if every node has enough, otherwise the CPU for all."""
    host = torch.device("cpu")
    if comm.Get_size() == 1:
        return (torch.device("cuda", 0) if torch.cuda.is_available() else host), host
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    number, neighbours = node.Get_rank(), node.Get_size()
    node.Free()
    enough = comm.allreduce(torch.cuda.is_available() and torch.cuda.device_count() >= neighbours, op=MPI.LAND)
    return (torch.device("cuda", number) if enough else host), host
