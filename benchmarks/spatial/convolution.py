"""Times two 3x3 convolutions (3 -> 64 -> 64 channels), forward and backward, on tiles and on rank 0 alone.

mpirun -n 2 python benchmarks/spatial/convolution.py [--sizes 64 256] [--batch 32] [--rounds 5] [--pool]

All sides run in the same processes with one thread per rank, so they share allocator settings. While rank 0 computes
alone, the other ranks sleep. The ceiling is the same tiles with plain torch layers and no exchange; it is below the
number of ranks because ranks share caches and memory. Prints the time of a step and of its exchanges, their bytes, the
peak memory of each side, and the overhead of layers for tiles on a single rank with the whole image.
"""

from __future__ import annotations

import argparse
import json

import torch
from sides import Sides
from torch import Tensor

import weft
from weft import spatial


def median(values: Tensor) -> float:
    return values.median().item()


def report(name: str, value: float, unit: str, peer: str, ratio: float) -> None:
    figure = {"name": name, "value": round(value, 3), "unit": unit, "peer": peer, "ratio": round(ratio, 3)}
    if weft.world().rank == 0:
        print(json.dumps(figure), flush=True)


def report_times(name: str, times: dict[str, Tensor]) -> None:
    """Reports medians. Ratios are medians of the ratios within each round."""
    for i, clock in enumerate(("step", "processor time")):
        one, wrapped, tiles, ceiling = (times[side][:, i] for side in ("one", "wrapped", "tiles", "ceiling"))
        plain = f"{median(one):.1f} ms"
        speed = f"speed-up {median(one / tiles):.2f}, without exchange {median(one / ceiling):.2f}"
        report(f"{name}/{clock}", median(tiles), "ms", f"one rank {plain}, {speed}", median(tiles / one))
        report(f"{name}/single rank/{clock}", median(wrapped), "ms", f"plain layers {plain}", median(wrapped / one))


def run(sides: Sides, rounds: int) -> None:
    name = f"spatial/convolution/{'x'.join(map(str, sides.shape))}/{sides.comm.size}"
    one, tiles = sides.peaks()
    report(f"{name}/memory", tiles / 2**20, "MiB", f"one rank {one / 2**20:.0f} MiB", tiles / one)
    times = sides.times(rounds)
    report_times(name, times)
    exchange = sides.exchange_time()
    report(f"{name}/exchange", exchange, "ms", "step", exchange / median(times["tiles"][:, 0]))
    report(f"{name}/halo", sides.halo_bytes() / 1024, "KiB", "received forward", 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 256], help="image sizes (default 64 256)")
    parser.add_argument("--batch", type=int, default=32, help="images per batch (default 32)")
    parser.add_argument("--rounds", type=int, default=5, help="number of measured rounds (default 5)")
    parser.add_argument("--pool", action="store_true", help="allocate tensors from a memory pool")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.pool:
        weft.memory.pool()
    grid = spatial.RankGrid(weft.world().size, 1)
    for size in arguments.sizes:
        run(Sides(grid, size, arguments.batch), arguments.rounds)


if __name__ == "__main__":
    main()
