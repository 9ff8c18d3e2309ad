"""FSDP2 on a DeviceMesh over MPI, with distributed checkpoints: mpirun -n 2 python fully_sharded.py

--save FOLDER writes a checkpoint; --load FOLDER continues from one, on any number of ranks.
"""

import argparse

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--save", metavar="FOLDER")
parser.add_argument("--load", metavar="FOLDER")
arguments = parser.parse_args()

dist.init_process_group("weft")
rank, ranks = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("shard",))

torch.manual_seed(0)
x = torch.randn(256, 4)
y = x.sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
for layer in (model[0], model[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)  # each rank holds its share of every parameter
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def checkpoint() -> dict[str, object]:
    parameters, state = get_state_dict(model, optimizer)
    return {"model": parameters, "optimizer": state}


def loss(inputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.mse_loss(model(inputs), targets)


if arguments.load:
    loaded = checkpoint()
    dcp.load(loaded, checkpoint_id=arguments.load)
    set_state_dict(model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
for _ in range(5):
    optimizer.zero_grad()
    loss(x[rank::ranks], y[rank::ranks]).backward()
    optimizer.step()
if arguments.save:
    dcp.save(checkpoint(), checkpoint_id=arguments.save)
elements = sum(p.to_local().numel() for p in model.parameters())
print(f"rank {rank} of {ranks} ({dist.get_backend()}): loss {loss(x, y):.6f}, {elements} local elements")
dist.destroy_process_group()
