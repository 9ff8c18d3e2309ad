"""Errors and unusual sizes on tiles: every rank raises a clear error, results are correct, and no rank hangs."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import weft
from weft import spatial
from weft.spatial import DistTensor, Layout, RankGrid
from weft.spatial import functional as S


@pytest.fixture(scope="module")
def column(comm: weft.Communicator) -> RankGrid:
    return RankGrid(comm.size, 1)


def field(height: int, width: int = 5, channels: int = 2) -> torch.Tensor:
    return torch.randn(1, channels, height, width, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def test_tiles_may_be_smaller_than_the_kernel(column: RankGrid) -> None:
    """One row per rank and a window of 7 rows: the halo comes from three ranks on each side."""
    x, weight = field(column.size), torch.ones(1, 2, 7, 7, dtype=torch.float64)
    y = S.conv(DistTensor.tile_of(x, Layout(column, x.shape[2:])), weight, padding=3)
    assert torch.allclose(y.local, F.conv2d(x, weight, padding=3)[(..., *y.layout.tile())], atol=1e-12)


def test_one_rank_may_own_all_cells(column: RankGrid) -> None:
    x = field(6)
    layout = Layout(column, parts=[[6] + [0] * (column.size - 1), [5]])
    tile = DistTensor.tile_of(x, layout)
    y = S.max_pool(S.conv(tile, torch.ones(3, 2, 3, 3, dtype=torch.float64), padding=1), 2)
    expected = F.max_pool2d(F.conv2d(x, torch.ones(3, 2, 3, 3, dtype=torch.float64), padding=1), 2)
    assert torch.allclose(y.local, expected[(..., *y.layout.tile())])
    mean = spatial.BatchNorm2d(3).double()(y)
    assert mean.local.shape == y.local.shape


def test_nan_affects_only_windows_that_contain_it(column: RankGrid) -> None:
    x = field(3 * column.size)
    x[0, 0, 2, 2] = float("nan")  # the last row of the first tile
    layout = Layout(column, x.shape[2:])
    weight = torch.ones(1, 2, 3, 3, dtype=torch.float64)
    y = S.conv(DistTensor.tile_of(x, layout), weight, padding=1)
    assert torch.equal(y.local.isnan(), F.conv2d(x, weight, padding=1).isnan()[(..., *layout.tile())])
    loss = y.sum_all()
    assert loss.isnan()


def test_l2_pool_has_zero_gradient_at_zero(column: RankGrid) -> None:
    layout = Layout(column, (2 * column.size, 4))
    tile = DistTensor(torch.zeros(1, 1, 2, 4, requires_grad=True), layout)
    y = S.l2_pool(tile, 2)
    weft.backward(y.local.sum())
    assert torch.equal(tile.local.grad, torch.zeros(1, 1, 2, 4))


def test_window_that_does_not_fit_raises(column: RankGrid, works_afterwards: None) -> None:
    tile = DistTensor.tile_of(field(4), Layout(column, (4, 5)))
    with pytest.raises((ValueError, RuntimeError), match="does not fit into 4 cells"):
        S.conv(tile, torch.ones(1, 2, 9, 1, dtype=torch.float64))


def test_local_tensor_of_the_wrong_size_raises(column: RankGrid, works_afterwards: None) -> None:
    layout = Layout(column, (2 * column.size, 5))
    with pytest.raises((ValueError, RuntimeError), match="its tensor must end in sizes"):
        S.max_pool(DistTensor(torch.zeros(1, 1, 3, 5), layout), 2)


def test_different_batch_on_one_rank_raises_on_all_ranks(column: RankGrid, works_afterwards: None) -> None:
    if column.size == 1:
        return
    layout = Layout(column, (2 * column.size, 5))
    tile = DistTensor(torch.zeros(2 if column.rank == 0 else 1, 2, 2, 5), layout)
    with pytest.raises(weft.Disagreement, match="halo_exchange"):
        S.max_pool(tile, 3, 1, 1)


def test_unsupported_functions_raise_and_are_named(column: RankGrid) -> None:
    tile = DistTensor.tile_of(field(4), Layout(column, (4, 5)))
    with pytest.raises(NotImplementedError, match="'cumsum' is not defined for a tensor in tiles"):
        torch.cumsum(tile, 2)
    with pytest.raises(NotImplementedError, match="softmax along dimension -1"):
        F.softmax(tile, -1)
    with pytest.raises(NotImplementedError, match="cat along dimension 2"):
        torch.cat([tile, tile], 2)
    with pytest.raises(ValueError, match="cannot combine tiles"):
        tile + DistTensor.tile_of(field(6), Layout(column, (6, 5)))


def test_scatter_without_a_tensor_on_the_root_raises(column: RankGrid, works_afterwards: None) -> None:
    with pytest.raises((ValueError, RuntimeError), match="scatter expects, on rank 0, a tensor"):
        DistTensor.scatter(None, Layout(column, (4, 5)))


def test_all_gather_supports_half_precision_and_integers(column: RankGrid) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        x = (field(2 * column.size) * 10).to(dtype)
        tile = DistTensor.tile_of(x, Layout(column, x.shape[2:]))
        assert torch.equal(tile.all_gather(), x)


def test_forward_under_no_grad_records_nothing(column: RankGrid) -> None:
    tile = DistTensor.tile_of(field(2 * column.size), Layout(column, (2 * column.size, 5)))
    weight = torch.ones(1, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        for edges in ("apart", "padded"):
            assert not S.conv(tile, weight, padding=1, edges=edges).requires_grad
    assert weft.tape_length() == 0
