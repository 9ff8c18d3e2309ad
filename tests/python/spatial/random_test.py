"""Compares layers on tiles with torch on one process: results and gradients of random layers, sizes, grids and splits.

WEFT_SPATIAL_CASES is the number of cases (default 120), WEFT_SPATIAL_SEED the first seed (default 0).
`make test-spatial` runs 2,000.
"""

from __future__ import annotations

import os

import pytest
import torch
from spatial import cases

import weft
from weft.spatial import DistTensor

CASES = int(os.environ.get("WEFT_SPATIAL_CASES", "120"))
FIRST = int(os.environ.get("WEFT_SPATIAL_SEED", "0"))
TOLERANCE = 1e-12


def assert_close(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    assert actual.shape == expected.shape, f"{what}: {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    if actual.numel() == 0:
        return
    scale = max(1.0, expected.abs().max().item())
    error = (actual - expected).abs().max().item() / scale
    assert error <= TOLERANCE, f"{what}: off by {error:.2e}"


def check(seed: int, ranks: int) -> None:
    case = cases.make(seed, ranks)
    whole = case.x.clone().requires_grad_()
    weights = [w.clone().requires_grad_() for w in case.weights]
    expected = case.serial(whole, weights)
    cotangent = torch.randn(expected.shape, dtype=expected.dtype, generator=torch.Generator().manual_seed(seed))
    gradients = torch.autograd.grad((expected * cotangent).sum(), [whole, *weights])

    cut = case.cut or (lambda w: w)
    tile = DistTensor.tile_of(case.x, case.layout)
    tile.local = tile.local.clone().requires_grad_()
    own = [cut(w).clone().requires_grad_() for w in case.weights]
    y = case.tiled(tile, own)
    what = f"seed {seed} on {ranks} ranks, {case.name} of {tuple(case.x.shape)} in {case.layout}"
    box = (..., *y.layout.tile()) if isinstance(y, DistTensor) else (...,)
    local = y.local if isinstance(y, DistTensor) else y
    assert_close(local, expected[box], f"{what}: result")
    weft.backward((local * cotangent[box]).sum())
    zeros = [t.new_zeros(t.shape) if t.grad is None else t.grad for t in [tile.local, *own]]
    assert_close(zeros[0], gradients[0][(..., *case.layout.tile())], f"{what}: gradient of the input")
    for i, gradient in enumerate(gradients[1:]):
        assert_close(zeros[i + 1], cut(gradient), f"{what}: gradient of weight {i}")


@pytest.mark.parametrize("block", range(8))
def test_random_operations_match_torch(block: int, size: int) -> None:
    for seed in range(FIRST + block, FIRST + CASES, 8):
        check(seed, size)
        weft.reset_tape()
