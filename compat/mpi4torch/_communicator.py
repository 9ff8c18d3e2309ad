"""The communicator: ranks, and the operations between them."""

import copyreg
from typing import Any

import torch

import weft

from . import _library  # noqa: F401  (loads the class used below)
from ._handle import WaitHandle


@torch.jit.script
class MPI_Communicator:
    """Ranks that communicate. Every method can be differentiated, in Python and in TorchScript.

    Gradients are those of the sum of all ranks' losses. Axes may be negative. The collective methods check that all
    ranks call them alike, and throw on all ranks where not.
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
        """Reduction of all ranks' tensors, on all ranks."""
        return self._comm.Allreduce(tensor, op)

    def Bcast_(self, tensor: torch.Tensor, root: int) -> torch.Tensor:
        """The root's tensor, in the memory of ``tensor``, which must not be used further."""
        return self._comm.Bcast_(tensor, root)

    def Reduce_(self, tensor: torch.Tensor, op: int, root: int) -> torch.Tensor:
        """Reduction on the root, zeros elsewhere, in the memory of ``tensor``, which must not be used further."""
        return self._comm.Reduce_(tensor, op, root)

    def Gather(self, tensor: torch.Tensor, gatheraxis: int, root: int) -> torch.Tensor:
        """All ranks' tensors one after the other on the root; elsewhere size 0 along the axis."""
        return self._comm.Gather(tensor, gatheraxis, root)

    def Allgather(self, tensor: torch.Tensor, gatheraxis: int) -> torch.Tensor:
        """All ranks' tensors one after the other, on all ranks."""
        return self._comm.Allgather(tensor, gatheraxis)

    def Scatter(self, tensor: torch.Tensor, scatteraxis: int, numelem: int, root: int) -> torch.Tensor:
        """The next ``numelem`` slices of the root's tensor; what the other ranks pass as tensor does not matter."""
        return self._comm.Scatter(tensor, scatteraxis, numelem, root)

    def Alltoall(self, tensor: torch.Tensor, gatheraxis: int, scatteraxis: int, numelem: int) -> torch.Tensor:
        """As a Gather followed by a Scatter of ``numelem`` slices, without a root. Equal axes repartition."""
        return self._comm.Alltoall(tensor, gatheraxis, scatteraxis, numelem)

    def Isend(self, tensor: torch.Tensor, dest: int, tag: int) -> WaitHandle:
        """Starts to send; the tensor must stay unchanged until ``Wait``."""
        return WaitHandle(self._comm.Isend(tensor, dest, tag))

    def Irecv(self, tensor: torch.Tensor, source: int, tag: int) -> WaitHandle:
        """Starts to receive into the memory of ``tensor``; ``Wait`` returns it."""
        return WaitHandle(self._comm.Irecv(tensor, source, tag))

    def Wait(self, waithandle: WaitHandle) -> torch.Tensor:
        """Blocks; returns what was received or reduced, or the tensor that was sent."""
        return self._comm.Wait(waithandle._handle)

    def Send(self, tensor: torch.Tensor, dest: int, tag: int) -> torch.Tensor:
        """Sends, and returns the tensor; make the loss depend on it, or its gradient is never asked for."""
        return self._comm.Send(tensor, dest, tag)

    def Recv(self, tensor: torch.Tensor, source: int, tag: int) -> torch.Tensor:
        """Receives into the memory of ``tensor`` and returns it."""
        return self._comm.Recv(tensor, source, tag)

    # Not in mpi4torch:

    def Sendrecv(
        self, sendtensor: torch.Tensor, dest: int, sendtag: int, recvtensor: torch.Tensor, source: int, recvtag: int
    ) -> torch.Tensor:
        """Sends and receives at once; the result depends on both, so no dummies are needed."""
        return self._comm.Sendrecv(sendtensor, dest, sendtag, recvtensor, source, recvtag)

    def Reduce_scatter(self, tensor: torch.Tensor, op: int, scatteraxis: int, numelem: int) -> torch.Tensor:
        """The next ``numelem`` slices of the reduction of all ranks' tensors."""
        return self._comm.Reduce_scatter(tensor, op, scatteraxis, numelem)

    def Scan(self, tensor: torch.Tensor, op: int) -> torch.Tensor:
        """Reduction over the ranks up to this one."""
        return self._comm.Scan(tensor, op)

    def Iallreduce(self, tensor: torch.Tensor, op: int) -> WaitHandle:
        """Starts an Allreduce; only MPI_SUM can be differentiated."""
        return WaitHandle(self._comm.Iallreduce(tensor, op))

    def Barrier(self) -> None:
        """Waits until all ranks are here."""
        self._comm.Barrier()

    def Split(self, color: int, key: int) -> "MPI_Communicator":
        """Ranks of equal color, ordered by key. A negative color gives a communicator of size 0."""
        return MPI_Communicator(self._comm.Split(color, key))

    def Dup(self) -> "MPI_Communicator":
        """The same ranks, with traffic of its own."""
        return MPI_Communicator(self._comm.Dup())


def _reduce(comm: MPI_Communicator) -> tuple[Any, ...]:
    return _unpickle, (torch.ops.mpi4torch.pickle(comm._comm),)


def _unpickle(state: str) -> MPI_Communicator:
    return MPI_Communicator(torch.ops.mpi4torch.unpickle(state))


# Not as a method: TorchScript would compile it.
copyreg.pickle(MPI_Communicator, _reduce)


def _wrap(comm: weft.Communicator) -> MPI_Communicator:
    return MPI_Communicator(torch.ops.mpi4torch.communicator(comm._id))


COMM_WORLD = _wrap(weft.world())


def comm_from_mpi4py(comm: Any) -> MPI_Communicator:
    """The ranks of an mpi4py communicator, with traffic of its own. Collective over ``comm``."""
    try:
        import mpi4py.MPI  # noqa: F401
    except ImportError as error:
        raise RuntimeError("mpi4py is not available!") from error
    return _wrap(weft.from_mpi4py(comm))


def deactivate_cuda_aware_mpi_support() -> None:
    """From now on tensors on other devices go through host memory."""
    torch.ops.mpi4torch.deactivate_cuda_aware_mpi_support()
