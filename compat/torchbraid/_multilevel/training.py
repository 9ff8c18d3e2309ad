"""Passes and epochs of a model with a LayerParallel network ``parallel_nn``."""

from __future__ import annotations

from timeit import default_timer
from typing import Any

import torch
from torch import Tensor, nn

from .printing import root_print, unpack_arg
from .tensors import get_params, tensor_list_dot

OPTIMIZERS = {"pytorch_sgd": torch.optim.SGD, "pytorch_adam": torch.optim.Adam}


def make_optimizer(option: Any, model: nn.Module) -> torch.optim.Optimizer:
    """Raises ValueError for an unknown optimizer."""
    method, kwargs = unpack_arg(option)
    if method not in OPTIMIZERS:
        raise ValueError(f"torchbraid (weft): expected an optimizer out of {sorted(OPTIMIZERS)}, got {method!r}")
    parameters: Any = list(model.parameters()) or [{"params": []}]  # a rank may have no layers
    return OPTIMIZERS[method](parameters, **kwargs)


def comm_of(model: Any) -> Any:
    return model.parallel_nn.fwd_app.mpi_comm


def train_epoch(
    rank: int,
    model: Any,
    train_loader: Any,
    optimizer: Any,
    epoch: int,
    criterion: Any,
    criterion_kwargs: dict[str, Any],
    compose: Any,
    log_interval: int,
    device: Any,
    mgopt_printlevel: int,
) -> None:
    """Collective. Trains for one epoch. If the optimizer is an option, each batch creates one."""
    model.train()
    seconds, batches, loss = 0.0, len(train_loader), torch.zeros(())

    def progress(done: int, size: int, batch: int) -> None:
        root_print(
            rank,
            mgopt_printlevel,
            1,
            f"  Train Epoch: {epoch} [{done * size}/{len(train_loader.dataset)} ({100.0 * done / batches:.0f}%)]     "
            f"\tLoss: {loss.item():.9f}\tTime Per Batch {seconds / (batch + 1):.6f}",
        )

    for batch, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        start = default_timer()
        chosen = make_optimizer(optimizer, model) if isinstance(optimizer, tuple) else optimizer
        chosen.zero_grad()
        loss = compose(criterion, model(data), target, **criterion_kwargs)
        loss.backward()
        seconds += default_timer() - start
        chosen.step()
        root_print(rank, mgopt_printlevel, 2, f"Batch:  {batch}    Loss = {loss.item()}")
        if batch % log_interval == 0:
            progress(batch, len(data), batch)
        if batch + 1 == batches:
            progress(batches, len(data), batch)


@torch.no_grad()
def test(
    rank: int,
    model: Any,
    test_loader: Any,
    criterion: Any,
    criterion_kwargs: dict[str, Any],
    compose: Any,
    device: Any,
    mgopt_printlevel: int,
    indent: str = "",
) -> None:
    """Collective. Prints the loss and the accuracy on a data set."""
    model.eval()
    loss, correct, total = 0.0, 0, len(test_loader.dataset)
    for data, target in test_loader:
        data, target = data.to(device), target.to(device)
        output = model(data)
        loss += compose(criterion, output, target, **criterion_kwargs).item()
        if rank == 0 and output.dim() > 1:
            correct += (output.argmax(dim=1).view(-1) == target.view(-1)[: len(output)]).sum().item()
    root_print(
        rank,
        mgopt_printlevel,
        1,
        f"{indent}Test set: Average loss: {loss / total:.4f}, Accuracy: {correct}/{total} "
        f"({100.0 * correct / total:2.2f}%)\n",
    )


def objective(
    model: Any, data: Tensor, target: Tensor, criterion: Any, kwargs: dict[str, Any], compose: Any, term: Tensor | None
) -> Tensor:
    """Collective. Returns the loss minus the term of MG/OPT; every rank contributes the gradient of its term."""
    loss = compose(criterion, model(data), target, **kwargs)
    return loss if term is None else loss - term


def _term(lvl: int, model: Any, v_h: Any) -> Tensor | None:
    """Level 0 has no term of MG/OPT."""
    return None if lvl == 0 or v_h is None else tensor_list_dot(v_h, get_params(model), comm_of(model))


def compute_fwd_bwd_pass(
    lvl: int,
    optimizer: torch.optim.Optimizer,
    model: Any,
    data: Tensor,
    target: Tensor,
    criterion: Any,
    criterion_kwargs: dict[str, Any],
    compose: Any,
    v_h: Any,
) -> float:
    """Collective. Computes the gradients; returns the loss."""
    model.train()
    optimizer.zero_grad()
    loss = objective(model, data, target, criterion, criterion_kwargs, compose, _term(lvl, model, v_h))
    loss.backward()
    return comm_of(model).bcast(loss.item(), root=0)


def compute_fwd_pass(
    lvl: int,
    model: Any,
    data: Tensor,
    target: Tensor,
    criterion: Any,
    criterion_kwargs: dict[str, Any],
    compose: Any,
    v_h: Any,
) -> float:
    """Collective. Returns the loss without gradients."""
    model.eval()
    with torch.no_grad():
        loss = objective(model, data, target, criterion, criterion_kwargs, compose, _term(lvl, model, v_h))
    return comm_of(model).bcast(loss.item(), root=0)
