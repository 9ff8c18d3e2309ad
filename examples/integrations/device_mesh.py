"""DeviceMesh and DTensor over MPI, with tensor-parallel layers: mpirun -n 2 python device_mesh.py"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("weft")
rank, ranks = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (1, ranks), mesh_dim_names=("data", "tensor"))

torch.manual_seed(0)
x = torch.randn(64, 8)
net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))
parallelize_module(net, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
for _ in range(5):
    optimizer.zero_grad()
    nn.functional.mse_loss(net(x), x.flip(1)).backward()
    optimizer.step()
rows = distribute_tensor(x, mesh["tensor"], [Shard(0)])  # each rank holds some rows
total = (rows @ rows.T).sum()
assert isinstance(total, DTensor)
torch.testing.assert_close(total.full_tensor(), (x @ x.T).sum())
loss = nn.functional.mse_loss(net(x), x.flip(1))
print(f"rank {rank} of {ranks} ({dist.get_backend()}): loss {loss:.6f}, {len(rows.to_local())} local rows")
dist.destroy_process_group()
