"""Measures a training step on the ranks of a job; run by ``weft plan --validate``."""

from __future__ import annotations

import json
import sys
import time
import warnings

import torch

import weft
from weft.layer_parallel import LayerParallel

from .layers import training_step
from .plan import mean_square


def main() -> None:
    warnings.filterwarnings("ignore", message=".*did not converge.*")
    arguments = json.loads(sys.argv[1])
    sys.path[:0] = arguments["path"]
    torch.set_num_threads(arguments["threads"])
    comm = weft.world()
    saved = torch.load(arguments["file"], weights_only=False)
    net = LayerParallel(comm, saved["layers"], form=saved["forms"], tf=saved["tf"], **saved["options"])
    x = saved["x"]
    times = []
    for _ in range(arguments["repeats"] + 1):
        comm.barrier()
        start = time.perf_counter()
        training_step(net, x, mean_square)
        comm.barrier()
        times.append(time.perf_counter() - start)
    if comm.rank == 0:
        print(json.dumps({"seconds": min(times[1:])}), flush=True)


if __name__ == "__main__":
    main()
