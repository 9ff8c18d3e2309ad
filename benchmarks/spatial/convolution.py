"""Two convolutions, 3 -> 64 -> 64 channels of 3x3, forward and backward, on tiles: all ranks against rank 0 alone.

mpirun -n 2 python benchmarks/spatial/convolution.py [--sizes 64 256] [--batch 32] [--repeats 5] [--pool]

Both sides run in the same processes with one thread a rank, so they share allocator settings; while rank 0 computes
alone the others sleep. Prints the time of a step, of its exchanges alone, their bytes, and each side's peak memory.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from weft.spatial.traffic import TrafficWatch

import weft
from weft import spatial


def layers(kind: type[nn.Conv2d]) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(kind(3, 64, 3, padding=1), nn.ReLU(), kind(64, 64, 3, padding=1))


def step(net: nn.Module, x: object) -> None:
    y = net(x)
    local = y.local if isinstance(y, spatial.DistTensor) else y
    weft.backward(local.sum())
    net.zero_grad()


def asleep_until(comm: weft.Communicator, flag: str) -> None:
    """Waits without taking the core from the rank that is measured: a spinning wait would."""
    while not os.path.exists(flag):
        time.sleep(0.02)


def peak_bytes() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def reset_peak() -> None:
    torch.ops.weft.empty_pool()
    ctypes.CDLL(None).malloc_trim(0)  # or the other side's freed memory would count
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def timed(run: Callable[[], None]) -> Tensor:
    """Milliseconds by the clock and of processor time; the latter stays true on a machine that others use too."""
    start, used = time.perf_counter(), time.process_time()
    run()
    return torch.tensor([time.perf_counter() - start, time.process_time() - used]) * 1e3


class Comparison:
    def __init__(self, grid: spatial.Grid, size: int, batch: int) -> None:
        self.grid, self.comm = grid, grid.comm
        self.layout = spatial.Layout(grid, (size, size))
        self.shape = (batch, 3, size, size)
        self.whole, self.tiled = layers(nn.Conv2d), layers(spatial.Conv2d)
        self.name = f"{batch}x3x{size}x{size}"

    def alone(self, x: Tensor, flag: str) -> Tensor:
        """Rank 0's time for the whole image."""
        self.comm.barrier()
        taken = torch.zeros(2)
        if self.comm.rank == 0:
            taken = timed(lambda: step(self.whole, x))
            open(flag, "w").close()
        else:
            asleep_until(self.comm, flag)
        self.comm.barrier()
        if self.comm.rank == 0:
            os.remove(flag)
        return taken

    def together(self, x: spatial.DistTensor) -> Tensor:
        self.comm.barrier()
        return self.comm.all_reduce(timed(lambda: step(self.tiled, x)), "max")

    def exchanges(self, channels: int = 64) -> float:
        """One halo exchange of the second convolution, forward and backward, by itself."""
        tile = spatial.DistTensor(torch.randn(self.shape[0], channels, *self.layout.tile_sizes()), self.layout)
        weight = torch.zeros(1, channels, 3, 3)
        plan = self._plan(tile, weight)
        if plan is None:
            return 0.0
        gradient = torch.randn_like(torch.ops.weft.halo_exchange(tile.local, plan, 0.0))

        def both() -> None:
            torch.ops.weft.halo_exchange(tile.local, plan, 0.0)
            torch.ops.weft.halo_accumulate(gradient, plan)

        both()
        samples = []
        for _ in range(5):
            self.comm.barrier()
            samples.append(self.comm.all_reduce(timed(both), "max")[0].item())
        return statistics.median(samples)

    def _plan(self, tile: spatial.DistTensor, weight: Tensor) -> object:
        plans = []

        class Catch(TrafficWatch):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
                if function is torch.ops.weft.halo_exchange.default:
                    plans.append(args[1])
                return super().__torch_dispatch__(function, types, args, kwargs)

        with torch.no_grad(), Catch():
            spatial.functional.conv(tile.with_local(tile.local.to("meta")), weight.to("meta"), padding=1)
        return plans[0] if plans else None

    def halo_bytes(self) -> int:
        with torch.no_grad(), TrafficWatch() as watch:
            x = spatial.DistTensor(torch.empty(*self.shape[:2], *self.layout.tile_sizes(), device="meta"), self.layout)
            layers(spatial.Conv2d).to("meta")(x)
        return watch.traffic.halo_bytes


def report(name: str, value: float, unit: str, peer: str, ratio: float) -> None:
    figure = {"name": name, "value": round(value, 3), "unit": unit, "peer": peer, "ratio": round(ratio, 3)}
    if weft.world().rank == 0:
        print(json.dumps(figure), flush=True)


def run(case: Comparison, repeats: int) -> None:
    flag = f"/tmp/weft-benchmark-{os.getppid()}"
    ranks = case.comm.size
    generator = torch.Generator().manual_seed(1)
    whole = torch.randn(case.shape, generator=generator)
    tile = spatial.DistTensor.tile_of(whole, case.layout)
    alone, together = [], []
    for _ in range(repeats + 1):  # the first one warms up
        alone.append(case.alone(whole, flag))
        together.append(case.together(tile))
    reset_peak()  # memory is measured apart: giving it back to the system costs time
    case.alone(whole, flag)
    peaks = [peak_bytes()]
    reset_peak()
    case.together(tile)
    peaks.append(peak_bytes())
    one, many = (case.comm.broadcast(torch.stack(times[1:]).median(0).values) for times in (alone, together))
    name = f"spatial/convolution/{case.name}/{ranks}"
    for i, clock in enumerate(("step", "processor time")):
        peer = f"one rank {one[i]:.1f} ms, speed-up {one[i] / many[i]:.2f}"
        report(f"{name}/{clock}", many[i].item(), "ms", peer, (many[i] / one[i]).item())
    exchange = case.exchanges()
    report(f"{name}/exchange", exchange, "ms", "step", exchange / many[0].item())
    report(f"{name}/halo", case.halo_bytes() / 1024, "KiB", "received forward", 1)
    peak = case.comm.all_reduce(torch.tensor(float(peaks[1])), "max").item()
    first = case.comm.broadcast(torch.tensor(float(peaks[0]))).item()
    report(f"{name}/memory", peak / 2**20, "MiB", f"one rank {first / 2**20:.0f} MiB", peak / first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pool", action="store_true", help="both sides' tensors in reused memory")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.pool:
        weft.memory.pool()
    grid = spatial.Grid(weft.world().size, 1)
    for size in arguments.sizes:
        run(Comparison(grid, size, arguments.batch), arguments.repeats)


if __name__ == "__main__":
    main()
