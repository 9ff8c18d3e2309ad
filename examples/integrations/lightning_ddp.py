"""Lightning's Trainer over MPI: mpirun -n 2 python lightning_ddp.py"""

import argparse

import lightning
import torch
import torch.distributed as dist
import weft.integrations.lightning  # registers the strategy "weft"
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.mse_loss(self.net(x), y)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        return self.loss(*batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


parser = argparse.ArgumentParser()
parser.add_argument("--strategy", choices=["weft", "ddp"], default="weft", help="ddp: an explicit DDPStrategy object")
arguments = parser.parse_args()

torch.manual_seed(0)
x = torch.randn(256, 4)
y = x.sum(1, keepdim=True)
model = Regression()
ranks = weft.world().size
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=weft.world().split_shared().size,
    num_nodes=ranks // weft.world().split_shared().size,
    strategy="weft" if arguments.strategy == "weft" else DDPStrategy(process_group_backend="weft"),
    max_epochs=3,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, DataLoader(TensorDataset(x, y), batch_size=32 // ranks))
print(f"rank {trainer.global_rank} of {trainer.world_size} ({dist.get_backend()}): loss {model.loss(x, y):.6f}")
