"""Accelerate over MPI: mpirun -n 2 python accelerate_training.py"""

import torch
import weft.integrations.accelerate  # Accelerate accepts the backend "weft"
from accelerate import Accelerator, InitProcessGroupKwargs
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="weft")])
torch.manual_seed(0)
x = torch.randn(256, 4)
y = x.sum(1, keepdim=True)
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(x, y), batch_size=32 // weft.world().size)
model, optimizer, loader = accelerator.prepare(net, optimizer, loader)
for _ in range(3):
    for inputs, targets in loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.mse_loss(model(inputs), targets))
        optimizer.step()
loss = nn.functional.mse_loss(net(x), y)
state = accelerator.state
print(f"rank {accelerator.process_index} of {accelerator.num_processes} ({state.backend}): loss {loss:.6f}")
accelerator.end_training()
