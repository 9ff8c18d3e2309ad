"""DDP over MPI that writes curves for TensorBoard: mpirun -n 2 python tensorboard_curves.py FOLDER

`tensorboard --logdir FOLDER` shows them.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.tensorboard import SummaryWriter

dist.init_process_group("weft")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x = torch.randn(256, 4)
y = x.sum(1, keepdim=True)
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
writer = SummaryWriter(sys.argv[1]) if rank == 0 else None
for step in range(10):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x[rank::ranks]), y[rank::ranks])
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean, dist.ReduceOp.AVG)  # the loss of all ranks, not only of rank 0
    if writer:
        writer.add_scalar("loss", mean.item(), step)
if writer:
    writer.close()
print(f"rank {rank} of {ranks} ({dist.get_backend()}): loss {mean:.6f}")
dist.destroy_process_group()
