"""Measures a training step on the ranks of a job; run by ``weft plan --validate``."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

import weft
from weft.layer_parallel import LayerParallel

from .layers import training_step
from .plan import mean_square
from .recurrent import steps_dim, with_solver


def step_of(saved: dict[str, Any], comm: weft.Communicator) -> Callable[[], None]:
    """Returns a training step of the saved network on all ranks."""
    x, options = saved["x"], saved["options"]
    if "layers" in saved:
        layers = LayerParallel(comm, saved["layers"], form=saved["forms"], tf=saved["tf"], **options)
        return lambda: training_step(layers, x, mean_square)
    network = with_solver(saved["network"], saved["solver"], comm, **options)
    piece = x.tensor_split(comm.size, steps_dim(network))[comm.rank].contiguous()

    def step() -> None:
        y, *_ = network(piece)
        weft.backward(mean_square(y))
        for parameter in network.parameters():
            parameter.grad = None

    return step


def main() -> None:
    warnings.filterwarnings("ignore", message=".*did not converge.*")
    arguments = json.loads(sys.argv[1])
    sys.path[:0] = arguments["path"]
    torch.set_num_threads(arguments["threads"])
    comm = weft.world()
    step = step_of(torch.load(arguments["file"], weights_only=False), comm)
    times = []
    for _ in range(arguments["repeats"] + 1):
        comm.barrier()
        start = time.perf_counter()
        step()
        comm.barrier()
        times.append(time.perf_counter() - start)
    if comm.rank == 0:
        print(json.dumps({"seconds": min(times[1:])}), flush=True)


if __name__ == "__main__":
    main()
