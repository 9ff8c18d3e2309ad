"""Forward and backward of recurrent networks: torch.nn and ParaRNN against weft's solvers.

python benchmarks/time_parallel/recurrent.py                  one rank against torch.nn and ParaRNN
mpirun -n 2 python benchmarks/time_parallel/recurrent.py      all ranks against one rank

ParaRNN takes part if PARARNN names a folder with its package, changed so that it runs without a GPU.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import weft

sys.path.insert(0, str(Path(__file__).parents[1]))
from timing import compare, report

LONG = (8192, 2, 32)  # steps, batch, hidden and input size
SMALL_BATCH = (1024, 4, 128)
LARGE_BATCH = (1024, 32, 128)
REPEATS = 7
NEWTON_ITERATIONS = 3  # those of ParaRNN's default configuration


def trainer(network: nn.Module, x: Tensor, backward: Callable[[Tensor], None]) -> Callable[[], None]:
    """Returns a function that runs a forward and a backward pass."""

    def run() -> None:
        network.zero_grad()
        result = network(x)
        backward((result[0] if isinstance(result, tuple) else result).sum())

    return run


def alone(network: nn.Module, x: Tensor) -> Callable[[], None]:
    """Returns a pass that does not communicate; ranks other than 0 do nothing."""
    run = trainer(network, x, lambda loss: loss.backward())
    return run if weft.world().rank == 0 else lambda: None


def label(case: tuple[int, int, int]) -> str:
    return f"T{case[0]} B{case[1]} H{case[2]}"


def measure_against_torch(kind: str, case: tuple[int, int, int]) -> None:
    steps, batch, hidden = case
    torch.manual_seed(0)
    x = torch.randn(steps, batch, hidden)
    ours, theirs = getattr(weft, kind)(hidden, hidden, solver="serial"), getattr(nn, kind)(hidden, hidden)
    theirs.load_state_dict(ours.state_dict())
    times = compare({"weft": alone(ours, x), "torch": alone(theirs, x)}, calls=1, repeats=REPEATS)
    report(f"time_parallel/{kind}/{label(case)}/serial", times["weft"], f"torch.nn.{kind}", times["torch"])


def measure_pipeline(case: tuple[int, int, int]) -> None:
    """The pipeline with several numbers of chunks on all ranks against the serial solver on one."""
    world = weft.world()
    steps, batch, hidden = case
    torch.manual_seed(0)
    x = torch.randn(steps, batch, hidden)
    piece = x.tensor_split(world.size)[world.rank]
    runs = {"serial": alone(weft.GRU(hidden, hidden, solver="serial"), x)}
    for chunks in (2, 4, 8):
        network = weft.GRU(hidden, hidden, comm=world, solver="pipeline", chunks=chunks)
        runs[f"pipeline{chunks}"] = trainer(network, piece, weft.backward)
    times = compare(runs, calls=1, repeats=REPEATS)
    for name in list(runs)[1:]:
        report(f"time_parallel/GRU/{label(case)}/{name}/n{world.size}", times[name], "serial/n1", times["serial"])


def newton(comm: weft.Communicator | None, x: Tensor) -> weft.ParaGRU:
    """Returns a network whose solver takes as many iterations as ParaRNN's by default. ``x``: the whole sequence."""
    torch.manual_seed(0)
    probe = weft.ParaGRU(x.size(2), x.size(2), solver="newton")
    with torch.no_grad():
        probe(x)
    forward, _ = probe.statistics
    assert forward is not None
    tolerance = 1.01 * forward.residuals[NEWTON_ITERATIONS]
    network = weft.ParaGRU(x.size(2), x.size(2), comm=comm, solver="newton", tolerance=tolerance)
    network.load_state_dict(probe.state_dict())
    return network


def measure_newton(case: tuple[int, int, int]) -> None:
    """Newton's method on all ranks against one rank."""
    world = weft.world()
    steps, batch, hidden = case
    torch.manual_seed(0)
    x = torch.randn(steps, batch, hidden)
    piece = x.tensor_split(world.size)[world.rank]
    runs = {
        "newton/n1": alone(newton(None, x), x),
        "serial/n1": alone(weft.ParaGRU(hidden, hidden, solver="serial"), x),
        f"newton/n{world.size}": trainer(newton(world, x), piece, weft.backward),
    }
    times = compare(runs, calls=1, repeats=REPEATS)
    for name in list(runs)[1:]:
        report(f"time_parallel/ParaGRU/{label(case)}/{name}", times[name], "newton/n1", times["newton/n1"])


def measure_against_pararnn(case: tuple[int, int, int], package: str) -> None:
    sys.path.insert(0, package)
    from pararnn.rnn_cell.gru_diag_mh import GRUDiagMH, GRUDiagMHConfig  # type: ignore[import-not-found]

    steps, batch, hidden = case
    torch.manual_seed(0)
    x = torch.randn(batch, steps, hidden)
    in_time = x.transpose(0, 1).contiguous()
    config = GRUDiagMHConfig(state_dim=hidden, input_dim=hidden, num_heads=1, mode="parallel")
    runs = {
        "ParaRNN": alone(GRUDiagMH(config), x),
        "serial": alone(weft.ParaGRU(hidden, hidden, solver="serial"), in_time),
        "newton": alone(newton(None, in_time), in_time),
    }
    times = compare(runs, calls=1, repeats=REPEATS)
    for name in ("serial", "newton"):
        report(f"time_parallel/ParaGRU/{label(case)}/{name}", times[name], "ParaRNN", times["ParaRNN"])


def main() -> None:
    torch.set_num_threads(1)
    if weft.world().size > 1:
        measure_pipeline(LARGE_BATCH)
        measure_newton(LONG)
        return
    for kind in ("GRU", "LSTM"):
        for case in (LONG, SMALL_BATCH, LARGE_BATCH):
            measure_against_torch(kind, case)
    if "PARARNN" in os.environ:
        measure_against_pararnn(LONG, os.environ["PARARNN"])


if __name__ == "__main__":
    main()
