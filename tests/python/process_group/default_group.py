"""The default group of the torch.distributed tests: over weft, or over the backend that WEFT_TEST_BACKEND names."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import weft

BACKEND = os.environ.get("WEFT_TEST_BACKEND", "weft")

# The tests require more of weft than gloo supports. Running them on gloo validates the tests.
not_gloo = pytest.mark.skipif(BACKEND == "gloo", reason="gloo does not support this or returns a wrong result")
several = pytest.mark.skipif(weft.world().size == 1, reason="needs a peer")

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
DTYPES = (*FLOATING, *INTEGERS, torch.bool, *COMPLEX)

Shape = tuple[int, ...]


def each(dtypes: tuple[torch.dtype, ...], gloo_lacks: tuple[torch.dtype, ...] = ()) -> list[object]:
    """Returns the dtypes as test parameters."""
    lacks = (torch.int16, *gloo_lacks)
    return [pytest.param(dtype, id=str(dtype)[6:], marks=[not_gloo] if dtype in lacks else []) for dtype in dtypes]


def start(**options: object) -> None:
    """Calls init_process_group. weft gets rank and size from MPI, other backends from environment variables."""
    if BACKEND != "weft":
        comm = weft.world()
        os.environ.update(MASTER_ADDR="127.0.0.1", RANK=str(comm.rank), WORLD_SIZE=str(comm.size))
        os.environ["MASTER_PORT"] = str(int(comm.broadcast(torch.tensor(free_port())).item()))
    dist.init_process_group(BACKEND, **options)  # type: ignore[arg-type]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def lifetime(request: pytest.FixtureRequest, **options: object) -> Iterator[None]:
    """Fixture: the default group for the duration of a module; all ranks destroy it together."""
    start(**options)
    yield
    if not request.session.testsfailed:  # after a failure the ranks are out of step, and conftest ends the job
        dist.barrier()
        dist.destroy_process_group()


def numbers(shape: Shape, dtype: torch.dtype, *seeds: int) -> Tensor:
    """Returns values that depend only on the seeds; sums and products of a few are exact."""
    generator = torch.Generator().manual_seed(hash(seeds) % 2**31)
    if dtype.is_complex:
        real, imaginary = (_halves(shape, generator).to(dtype) for _ in range(2))
        return real + 1j * imaginary
    if dtype.is_floating_point:
        return _halves(shape, generator).to(dtype)
    lowest = 0 if dtype in (torch.bool, torch.uint8) else -3
    return torch.randint(lowest, 2 if dtype == torch.bool else 4, shape, generator=generator).to(dtype)


def _halves(shape: Shape, generator: torch.Generator) -> Tensor:
    # bfloat16 has 8 bits: a product of four numerators up to 3 is exact.
    return torch.randint(-3, 4, shape, generator=generator) / 2


def per_rank(size: int, shape: Shape, dtype: torch.dtype = torch.float32, seed: int = 0) -> list[Tensor]:
    """Returns the input of each rank."""
    return [numbers(shape, dtype, seed, rank) for rank in range(size)]


def same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
