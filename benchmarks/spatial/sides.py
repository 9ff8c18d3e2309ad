"""Runs a step in four ways: plain layers on one rank, tiles on one or all ranks, and tiles without exchange."""

from __future__ import annotations

import ctypes
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from weft.spatial.traffic import TrafficWatch

import weft
from weft import spatial


def layers(kind: type[nn.Conv2d]) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(kind(3, 64, 3, padding=1), nn.ReLU(), kind(64, 64, 3, padding=1))


def step(net: nn.Module, x: Tensor | spatial.DistTensor) -> None:
    y = net(x)
    local = y.local if isinstance(y, spatial.DistTensor) else y
    weft.backward(local.sum())
    net.zero_grad()


def timed(run: Callable[[], None]) -> Tensor:
    """Returns milliseconds of wall-clock and processor time; the latter is valid on a shared machine too."""
    start, used = time.perf_counter(), time.process_time()
    run()
    return torch.tensor([time.perf_counter() - start, time.process_time() - used]) * 1e3


def peak_bytes() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def reset_peak() -> None:
    torch.ops.weft.empty_pool()
    ctypes.CDLL(None).malloc_trim(0)  # freed memory of the other side must not count
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


class Sides:
    """A square image of three channels, split into strips."""

    def __init__(self, grid: spatial.RankGrid, size: int, batch: int) -> None:
        self.comm = grid.comm
        self.shape = (batch, 3, size, size)
        self.layout = spatial.Layout(grid, (size, size))
        self.alone = spatial.Layout(spatial.RankGrid(1, 1, comm=self.comm.split(self.comm.rank)), (size, size))
        self.plain, self.tiled = layers(nn.Conv2d), layers(spatial.Conv2d)

    def image(self) -> Tensor:
        return torch.randn(self.shape, generator=torch.Generator().manual_seed(1))

    def tile(self) -> spatial.DistTensor:
        """Returns a copy of the tile; a view would keep the whole image in memory."""
        whole = spatial.DistTensor.tile_of(self.image(), self.layout)
        return whole.with_local(whole.local.clone())

    def times(self, rounds: int) -> dict[str, Tensor]:
        """Returns [rounds, 2]: wall-clock and processor time of the slowest rank.

        The sides take turns, so that a slowdown of the machine affects all of them. Each turn starts with a warm-up,
        because the first step after a change of sizes also allocates memory.
        """
        image, tile = self.image(), self.tile()
        runs: dict[str, Callable[[], Tensor]] = {
            "one": lambda: self._rank_0(lambda: step(self.plain, image)),
            "wrapped": lambda: self._rank_0(lambda: step(self.tiled, spatial.DistTensor(image, self.alone))),
            "tiles": lambda: self._all(lambda: step(self.tiled, tile)),
            "ceiling": lambda: self._all(lambda: step(self.plain, tile.local)),
        }
        taken: dict[str, list[Tensor]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, run in runs.items():
                run()
                taken[name].append(run())
        return {name: torch.stack(times) for name, times in taken.items()}

    def peaks(self) -> tuple[float, float]:
        """Returns the peak of rank 0 with the whole image, and the largest peak with tiles. Call before times()."""
        return self._peak_of_one(), self._peak_of_tiles()

    def _peak_of_one(self) -> float:
        reset_peak()
        image = self.image()
        self._rank_0(lambda: step(self.plain, image))
        return self.comm.broadcast(torch.tensor(float(peak_bytes()))).item()

    def _peak_of_tiles(self) -> float:
        tile = self.tile()
        reset_peak()
        self._all(lambda: step(self.tiled, tile))
        return self.comm.all_reduce(torch.tensor(float(peak_bytes())), "max").item()

    def _rank_0(self, run: Callable[[], None]) -> Tensor:
        """Runs on rank 0. The other ranks sleep, because waiting for a message would use a core."""
        flag = Path(tempfile.gettempdir()) / f"weft-benchmark-{os.getppid()}"
        self.comm.barrier()
        taken = torch.zeros(2)
        if self.comm.rank == 0:
            taken = timed(run)
            flag.touch()
        while not flag.exists():
            time.sleep(0.02)
        self.comm.barrier()
        if self.comm.rank == 0:
            flag.unlink()
        return self.comm.broadcast(taken)

    def _all(self, run: Callable[[], None]) -> Tensor:
        self.comm.barrier()
        return self.comm.all_reduce(timed(run), "max")

    def exchange_time(self, channels: int = 64) -> float:
        """Returns the milliseconds of one halo exchange of the second convolution, forward and backward."""
        tile = torch.randn(self.shape[0], channels, *self.layout.tile_sizes())
        plan = self._plan(channels)
        if plan is None:
            return 0.0
        gradient = torch.randn_like(torch.ops.weft.halo_exchange(tile, plan, 0.0))

        def both() -> None:
            torch.ops.weft.halo_exchange(tile, plan, 0.0)
            torch.ops.weft.halo_accumulate(gradient, plan)

        both()
        return statistics.median(self._all(both)[0].item() for _ in range(5))

    def _plan(self, channels: int) -> object:
        plans = []

        class Catch(TrafficWatch):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
                if function is torch.ops.weft.halo_exchange.default:
                    plans.append(args[1])
                return super().__torch_dispatch__(function, types, args, kwargs)

        with torch.no_grad(), Catch():
            x = torch.empty(self.shape[0], channels, *self.layout.tile_sizes(), device="meta")
            weight = torch.empty(1, channels, 3, 3, device="meta")
            spatial.functional.conv(spatial.DistTensor(x, self.layout), weight, padding=1)
        return plans[0] if plans else None

    def halo_bytes(self) -> int:
        with torch.no_grad(), TrafficWatch() as watch:
            x = torch.empty(*self.shape[:2], *self.layout.tile_sizes(), device="meta")
            layers(spatial.Conv2d).to("meta")(spatial.DistTensor(x, self.layout))
        return watch.traffic.halo_bytes
