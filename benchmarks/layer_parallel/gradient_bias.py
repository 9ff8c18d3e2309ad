"""The bias of multigrid's gradients and its effect on training, with and without an IterationController.

python benchmarks/layer_parallel/gradient_bias.py      (the numbers do not depend on the number of ranks)
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

import weft
from weft import IterationController, LayerParallel, Solve

STEPS, ROWS, FEATURES, HIDDEN = 32, 5, 3, 8


class ImplicitGruStep(nn.Module):
    """A step of the GRU of torchbraid's examples: implicit, so that it is stable for any step size."""

    def __init__(self, number: int, cell: nn.GRUCell) -> None:
        super().__init__()
        self.number, self.cell = number, cell

    def forward(self, h: Tensor, dt: float, series: Tensor) -> Tensor:
        given = series[:, self.number] @ self.cell.weight_ih.T + self.cell.bias_ih
        recurrent = self.cell.weight_hh
        r, z = (torch.sigmoid(given[:, i : i + HIDDEN] + h @ recurrent[i : i + HIDDEN].T) for i in (0, HIDDEN))
        n = torch.tanh(given[:, 2 * HIDDEN :] + r * (h @ recurrent[2 * HIDDEN :].T))
        gain = STEPS * dt * z
        return (h + gain * n) / (1 + gain)


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4).double()
        nn.init.normal_(self.linear.weight, std=0.5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


def train(net: LayerParallel, x: Tensor, target: Tensor, batches: int, rate: float, **extra: Any) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    for _ in range(batches):
        optimizer.zero_grad()
        weft.backward(net.loss(nn.functional.mse_loss, x, target, **extra))
        optimizer.step()


def exact_loss(net: LayerParallel, x: Tensor, target: Tensor, **extra: Tensor) -> float:
    serial = net.serial()
    return float(nn.functional.mse_loss(serial(x, **extra), target)) if serial is not None else 0.0


def controllers() -> dict[str, tuple[str, IterationController | None]]:
    return {
        "mgrit": ("mgrit", None),
        "mgrit, report": ("mgrit", IterationController("report", every=5)),
        "mgrit, adapt": ("mgrit", IterationController("adapt", every=5)),
        "pipeline": ("pipeline", None),
    }


def print_row(problem: str, name: str, control: IterationController | None, batches: int, loss: float) -> None:
    if weft.world().rank != 0:
        return
    log = control.log if control is not None else []
    biases = f"{log[0].bias:.2f} | {log[-1].bias:.2g}" if log else "- | -"
    following = log[-1].next if log else "-"
    print(f"| {problem} | {name} | {biases} | {len(log) or '-'} | {following} | {loss:.2e} |", flush=True)


def white_noise() -> None:
    batches = 200
    generator = torch.Generator().manual_seed(1)
    series = torch.randn(ROWS, STEPS, FEATURES, dtype=torch.float64, generator=generator)
    target = 0.5 * torch.randn(ROWS, HIDDEN, dtype=torch.float64, generator=generator)
    start = torch.zeros(ROWS, HIDDEN).double()
    few = {"relaxations": 0, "residual": False, "skip_downcycle": True}
    for name, (solver, control) in controllers().items():
        torch.manual_seed(3)
        cell = nn.GRUCell(FEATURES, HIDDEN).double()
        net = LayerParallel(
            weft.world(),
            [ImplicitGruStep(number, cell) for number in range(STEPS)],
            form="step",
            solver=solver,
            levels=3,
            cfactor=4,
            forward=Solve(iterations=2, **few),  # type: ignore[arg-type]
            backward=Solve(iterations=1, **few),  # type: ignore[arg-type]
            control=control,
        )
        train(net, start, target, batches, 0.02, series=weft.PerSample(series))
        print_row("GRU, white noise", name, control, batches, exact_loss(net, start, target, series=series))


def near_a_minimum() -> None:
    batches = 150
    generator = torch.Generator().manual_seed(7)
    x, noise = torch.randn(2, 3, 4, dtype=torch.float64, generator=generator)
    few = Solve(iterations=1, relaxations=0, residual=False)
    for name, (solver, control) in controllers().items():
        torch.manual_seed(5)
        net = LayerParallel(
            weft.world(),
            [Dense() for _ in range(16)],
            tf=2.0,
            solver=solver,
            levels=2,
            cfactor=4,
            forward=few,
            backward=few,
            control=control,
        )
        target = x + 0.3 * noise
        train(net, x, target, batches, 0.01)
        print_row("dense, to the minimum", name, control, batches, exact_loss(net, x, target))


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if weft.world().rank == 0:
        print("| problem | solver | first bias | last bias | comparisons | at the end | final loss |")
        print("|---|---|---:|---:|---:|---|---:|")
    white_noise()
    near_a_minimum()


if __name__ == "__main__":
    main()
