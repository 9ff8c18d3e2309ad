"""MPI_Communicator: a group of ranks and the operations between them."""

import copyreg
from typing import Any

import torch

import weft

from . import _library  # noqa: F401  (loads the class used below)
from ._handle import WaitHandle


@torch.jit.script
class MPI_Communicator:
    """A group of ranks. All methods are differentiable, in Python and in TorchScript.

    Gradients are those of the sum of all ranks' losses. Axes may be negative. A collective method raises on all ranks
    if the ranks call it with different arguments.
    """

    def __init__(self, comm: torch.classes.mpi4torch.MPI_Comm_Wrapper):
        self._comm = comm

    @property
    def rank(self) -> int:
        return self._comm.GetRank()

    @property
    def size(self) -> int:
        return self._comm.GetSize()

    def Allreduce(self, tensor: torch.Tensor, op: int) -> torch.Tensor:
        """Collective. Returns the reduction of all ranks' tensors on all ranks."""
        return self._comm.Allreduce(tensor, op)

    def Bcast_(self, tensor: torch.Tensor, root: int) -> torch.Tensor:
        """Collective. Returns the root's tensor in the memory of ``tensor``, which must not be used afterwards."""
        return self._comm.Bcast_(tensor, root)

    def Reduce_(self, tensor: torch.Tensor, op: int, root: int) -> torch.Tensor:
        """Collective. Like Bcast_, but returns the reduction on the root and zeros on other ranks."""
        return self._comm.Reduce_(tensor, op, root)

    def Gather(self, tensor: torch.Tensor, gatheraxis: int, root: int) -> torch.Tensor:
        """Collective. Concatenates all ranks' tensors on the root; other ranks get size 0 along the axis."""
        return self._comm.Gather(tensor, gatheraxis, root)

    def Allgather(self, tensor: torch.Tensor, gatheraxis: int) -> torch.Tensor:
        """Collective. Concatenates all ranks' tensors on all ranks."""
        return self._comm.Allgather(tensor, gatheraxis)

    def Scatter(self, tensor: torch.Tensor, scatteraxis: int, numelem: int, root: int) -> torch.Tensor:
        """Collective. Returns the next ``numelem`` slices of the root's tensor; other ranks' tensors are ignored."""
        return self._comm.Scatter(tensor, scatteraxis, numelem, root)

    def Alltoall(self, tensor: torch.Tensor, gatheraxis: int, scatteraxis: int, numelem: int) -> torch.Tensor:
        """Collective. Like Gather, then Scatter of ``numelem`` slices, without a root. Equal axes repartition."""
        return self._comm.Alltoall(tensor, gatheraxis, scatteraxis, numelem)

    def Isend(self, tensor: torch.Tensor, dest: int, tag: int) -> WaitHandle:
        """Starts a send. Do not modify the tensor before ``Wait``."""
        return WaitHandle(self._comm.Isend(tensor, dest, tag))

    def Irecv(self, tensor: torch.Tensor, source: int, tag: int) -> WaitHandle:
        """Starts a receive into the memory of ``tensor``; ``Wait`` returns it."""
        return WaitHandle(self._comm.Irecv(tensor, source, tag))

    def Wait(self, waithandle: WaitHandle) -> torch.Tensor:
        """Blocks until completion; returns the received, reduced or sent tensor. Call it once per handle."""
        return self._comm.Wait(waithandle._handle)

    def Send(self, tensor: torch.Tensor, dest: int, tag: int) -> torch.Tensor:
        """Sends and returns the tensor. The loss must depend on the result, or its gradient is never requested."""
        return self._comm.Send(tensor, dest, tag)

    def Recv(self, tensor: torch.Tensor, source: int, tag: int) -> torch.Tensor:
        """Receives into the memory of ``tensor`` and returns it."""
        return self._comm.Recv(tensor, source, tag)

    # Extensions of mpi4torch's interface

    def Sendrecv(
        self, sendtensor: torch.Tensor, dest: int, sendtag: int, recvtensor: torch.Tensor, source: int, recvtag: int
    ) -> torch.Tensor:
        """Sends and receives at the same time. The result depends on both, so no dummies are needed."""
        return self._comm.Sendrecv(sendtensor, dest, sendtag, recvtensor, source, recvtag)

    def Reduce_scatter(self, tensor: torch.Tensor, op: int, scatteraxis: int, numelem: int) -> torch.Tensor:
        """Collective. Returns the next ``numelem`` slices of the reduction of all ranks' tensors."""
        return self._comm.Reduce_scatter(tensor, op, scatteraxis, numelem)

    def Scan(self, tensor: torch.Tensor, op: int) -> torch.Tensor:
        """Collective. Returns the reduction over ranks 0 to this one."""
        return self._comm.Scan(tensor, op)

    def Iallreduce(self, tensor: torch.Tensor, op: int) -> WaitHandle:
        """Collective. Starts an Allreduce; only MPI_SUM is differentiable."""
        return WaitHandle(self._comm.Iallreduce(tensor, op))

    def Barrier(self) -> None:
        """Collective. Blocks until all ranks have called it."""
        self._comm.Barrier()

    def Split(self, color: int, key: int) -> "MPI_Communicator":
        """Collective. Returns the ranks of equal color, ordered by key; with a negative color, size 0."""
        return MPI_Communicator(self._comm.Split(color, key))

    def Dup(self) -> "MPI_Communicator":
        """Collective. Returns a communicator of the same ranks with separate messages."""
        return MPI_Communicator(self._comm.Dup())


def _reduce(comm: MPI_Communicator) -> tuple[Any, ...]:
    return _unpickle, (torch.ops.mpi4torch.pickle(comm._comm),)


def _unpickle(state: str) -> MPI_Communicator:
    return MPI_Communicator(torch.ops.mpi4torch.unpickle(state))


# _reduce is not a method, because TorchScript would compile it.
copyreg.pickle(MPI_Communicator, _reduce)


def _wrap(comm: weft.Communicator) -> MPI_Communicator:
    return MPI_Communicator(torch.ops.mpi4torch.communicator(comm._id))


COMM_WORLD = _wrap(weft.world())


def comm_from_mpi4py(comm: Any) -> MPI_Communicator:
    """Collective over ``comm``. Returns a communicator of its ranks with separate messages.

    Raises RuntimeError if mpi4py is missing or uses a different MPI library.
    """
    try:
        import mpi4py.MPI  # noqa: F401
    except ImportError as error:
        raise RuntimeError("mpi4py is not available!") from error
    return _wrap(weft.from_mpi4py(comm))


def deactivate_cuda_aware_mpi_support() -> None:
    """Stages tensors on other devices through host memory from now on."""
    torch.ops.mpi4torch.deactivate_cuda_aware_mpi_support()
