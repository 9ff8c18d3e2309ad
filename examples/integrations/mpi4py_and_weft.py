"""mpi4py and weft in one program: mpirun -n 2 python mpi4py_and_weft.py"""

import torch
from mpi4py import MPI

import weft

# From mpi4py to weft: the ranks in reverse order.
theirs = MPI.COMM_WORLD.Split(0, -MPI.COMM_WORLD.rank)
comm = weft.from_mpi4py(theirs)
x = torch.tensor([float(comm.rank)], requires_grad=True)
y = comm.all_reduce(x)
weft.backward(y.square().sum())  # mpi4py has no gradients; weft has

# From weft to mpi4py: pickled objects, files and one-sided communication.
again = weft.to_mpi4py(comm)
ranks = again.allgather(MPI.COMM_WORLD.rank)
print(f"rank {weft.world().rank} of {comm.size}: sum {y.item()}, gradient {x.grad.item()}, order {ranks}")
again.Free()
theirs.Free()
