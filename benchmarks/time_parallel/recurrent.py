"""Forward and backward of recurrent networks: torch.nn and ParaRNN against weft's solvers.

OMP_NUM_THREADS=1 mpirun -n 2 python benchmarks/time_parallel/recurrent.py [--pararnn FOLDER]

FOLDER holds a copy of ParaRNN (github.com/apple/ml-pararnn) that runs on a CPU: without its CUDA extension
(``parallel_reduce_cuda``, ``load_library`` and ``register_fake``), and with ``unsafe_hash=True`` in NewtonConfig.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import weft

sys.path.insert(0, str(Path(__file__).parents[1]))
from timing import compare, report

ITERATIONS = 3
"""Newton iterations of ParaRNN's default."""

Step = Callable[[], float | None]
"""A pass. It may return the seconds of its call that do not count."""


def training_step(net: nn.Module, x: Tensor) -> Step:
    """A forward and a backward pass."""

    def run() -> None:
        result = net(x)
        y = result[0] if isinstance(result, tuple) else result
        weft.backward(y.sum())
        net.zero_grad()

    return run


def on_first(step: Step) -> Step:
    """Runs a step on rank 0. The other ranks sleep until it has ended, so that they do not use a core."""
    world = weft.world()
    done = torch.zeros(1)

    def run() -> float:
        if world.rank == 0:
            step()
        ended = time.perf_counter()
        with weft.tape(False):
            if world.rank == 0:
                for rank in range(1, world.size):
                    world.isend(done, dest=rank).wait()
            else:
                request = world.irecv(like=done, source=0)
                while not request.test():
                    time.sleep(0.0005)
                request.wait()
        return time.perf_counter() - ended

    return run


def measure(
    alternatives: dict[str, Step], peer: str, name: str, repeats: int = 7, apart: bool = False
) -> dict[str, float]:
    """Reports all alternatives against the one with the name ``peer``. Returns the microseconds of all of them.

    ``apart``: measure one after the other. If large networks alternate, they evict each other's memory from the pool,
    and page faults add to their times.
    """
    groups = [{kind: step} for kind, step in alternatives.items()] if apart else [alternatives]
    times: dict[str, float] = {}
    for group in groups:
        times |= compare(group, calls=1, repeats=repeats)
    for kind, microseconds in times.items():
        if kind != peer:
            report(f"time_parallel/{name}/{kind}", microseconds, peer, times[peer])
    return times


def fused() -> None:
    """The fused recurrences on one rank against torch.nn."""
    for kind in ("GRU", "LSTM"):
        for steps, batch, hidden in ((1024, 32, 128), (1024, 4, 128), (8192, 2, 32)):
            torch.manual_seed(0)
            x = torch.randn(steps, batch, hidden)
            nets = {"torch.nn": getattr(nn, kind)(hidden, hidden), "serial": getattr(weft, kind)(hidden, hidden)}
            steps_of = {name: on_first(training_step(net, x)) for name, net in nets.items()}
            measure(steps_of, "torch.nn", f"{kind}/{steps}x{batch}x{hidden}", repeats=5)


def pipeline() -> None:
    """Chunks of the batch on all ranks against the serial solver on one."""
    world = weft.world()
    steps, batch, hidden = 1024, 32, 128
    torch.manual_seed(0)
    x = torch.randn(steps, batch, hidden)
    piece = x.chunk(world.size)[world.rank]
    alternatives = {"serial/n1": on_first(training_step(weft.GRU(hidden, hidden), x))}
    for chunks in (4, 8, 16):
        net = weft.GRU(hidden, hidden, comm=world, solver="pipeline", chunks=chunks)
        alternatives[f"pipeline/{chunks} chunks/n{world.size}"] = training_step(net, piece)
    measure(alternatives, "serial/n1", f"GRU/{steps}x{batch}x{hidden}", apart=True)


def newton(pararnn: str | None) -> None:
    """ParaGRU with Newton's method on one rank and on all, against the serial recurrence and ParaRNN."""
    world = weft.world()
    steps, batch, hidden = 8192, 2, 32
    torch.manual_seed(0)
    x = torch.randn(steps, batch, hidden)
    piece = x.chunk(world.size)[world.rank]

    # With this residual, the solve takes the same number of iterations as ParaRNN.
    probe = weft.ParaGRU(hidden, hidden, solver="newton")
    probe(x)
    tolerance = 1.001 * probe.statistics[0].residuals[ITERATIONS - 1]

    def network(**options: Any) -> weft.ParaGRU:
        net = weft.ParaGRU(hidden, hidden, **options)
        net.load_state_dict(probe.state_dict())
        return net

    alternatives = {
        "newton/n1": on_first(training_step(network(solver="newton", tolerance=tolerance), x)),
        f"newton/n{world.size}": training_step(network(solver="newton", tolerance=tolerance, comm=world), piece),
        "serial/n1": on_first(training_step(network(), x)),
        f"pipeline/n{world.size}": training_step(network(comm=world, solver="pipeline"), piece),
    }
    if pararnn is not None:
        alternatives["ParaRNN"] = on_first(training_step(peer_network(pararnn, hidden), x.transpose(0, 1)))
    measure(alternatives, "ParaRNN" if pararnn is not None else "newton/n1", f"ParaGRU/{steps}x{batch}x{hidden}")


def break_even() -> None:
    """The work of Newton's method on one rank, and the number of ranks with which it overtakes the exact solvers.

    The numbers are extrapolated: they assume that the work divides evenly, and that messages take no time. A pipeline
    of b rows on p ranks takes (p + b - 1) / (b p) of the serial time.
    """
    steps, batch, hidden = 8192, 2, 32
    torch.manual_seed(0)
    x = torch.randn(steps, batch, hidden)
    for kind in (weft.GRU, weft.LSTM, weft.ParaGRU, weft.ParaLSTM):
        serial, newton = kind(hidden, hidden), kind(hidden, hidden, solver="newton", tolerance=1e-4)
        newton.load_state_dict(serial.state_dict())
        steps_of = {"serial": on_first(training_step(serial, x)), "newton": on_first(training_step(newton, x))}
        name = f"{kind.__name__}/{steps}x{batch}x{hidden}/tolerance 1e-4"
        times = measure(steps_of, "serial", name)
        ratio = times["newton"] / times["serial"]
        for solver, bound in (("serial", ratio), ("pipeline", batch * (ratio - 1) + 1)):
            if weft.world().rank == 0:
                ranks = math.floor(bound) + 1
                text = {"name": f"time_parallel/{name}/newton overtakes {solver}", "value": ranks, "unit": "ranks"}
                print(json.dumps(text), flush=True)


def peer_network(folder: str, hidden: int) -> nn.Module:
    sys.path.insert(0, folder)
    from pararnn.rnn_cell.gru_diag_mh import GRUDiagMH, GRUDiagMHConfig

    return GRUDiagMH(GRUDiagMHConfig(state_dim=hidden, input_dim=hidden, num_heads=1, mode="parallel"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pararnn", metavar="FOLDER", help="a copy of ParaRNN for comparison")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    fused()
    newton(arguments.pararnn)
    break_even()
    if weft.world().size > 1:
        pipeline()


if __name__ == "__main__":
    main()
