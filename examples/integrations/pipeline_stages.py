"""torch.distributed.pipelining over MPI: mpirun -n 2 python pipeline_stages.py"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

MICROBATCHES = 4

dist.init_process_group("weft")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x = torch.randn(64, 8)
y = x.flip(1)
blocks = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)]
first, last = 4 * rank // ranks, 4 * (rank + 1) // ranks
part = nn.Sequential(*blocks[first:last])  # this rank's blocks
stage = PipelineStage(part, rank, ranks, torch.device("cpu"))
schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD(part.parameters(), lr=1.0)
loss = torch.zeros(())
for _ in range(5):
    losses: list[torch.Tensor] = []
    optimizer.zero_grad()
    inputs = (x,) if rank == 0 else ()
    if rank == ranks - 1:
        schedule.step(*inputs, target=y, losses=losses)
        loss = torch.stack(losses).mean().detach()
    else:
        schedule.step(*inputs)
    optimizer.step()
dist.broadcast(loss, src=ranks - 1)
print(f"rank {rank} of {ranks} ({dist.get_backend()}): loss {loss:.6f}")
dist.destroy_process_group()
