"""A program for torch's backend "mpi", served by weft: mpirun -n 2 python mpi_backend.py"""

import torch
import torch.distributed as dist

import weft

weft.use_as_mpi_backend()
dist.init_process_group("mpi")
x = torch.ones(1)
dist.all_reduce(x)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} ({dist.get_backend()}): sum {x.item()}")
dist.destroy_process_group()
