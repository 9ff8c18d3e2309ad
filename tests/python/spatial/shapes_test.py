"""Shape operations, attention and segmentation heads on tiles give the results and gradients of one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from spatial import networks
from spatial.one_process import differences
from spatial.parallelize_test import squarest
from torch import Tensor, nn

import weft
from weft import spatial
from weft.spatial import DistTensor, Layout, RankGrid

LARGEST = 1e-13

NETWORKS = {
    "channel shuffle": (networks.Shuffles, (2, 3, 18, 22)),
    "channels last": (networks.ChannelsLast, (2, 3, 18, 22)),
    "segmentation": (networks.Segments, (3, 3, 19, 23)),
    "vision transformer": (lambda: networks.VisionTransformer(5 * 6), (2, 3, 20, 24)),
    "shifted windows": (networks.WindowAttention, (2, 3, 22, 26)),
}


@pytest.fixture(scope="module")
def grid(comm: weft.Communicator) -> RankGrid:
    return RankGrid(*squarest(comm.size))


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_equal_one_process(name: str, grid: RankGrid) -> None:
    make, shape = NETWORKS[name]
    torch.manual_seed(1)
    found, _ = differences(make().double(), grid, shape)
    assert max(found) < LARGEST, found


def test_signals_keep_the_queries_in_tiles(comm: weft.Communicator) -> None:
    torch.manual_seed(1)
    found, split = differences(networks.SignalAttention().double(), RankGrid(comm.size), (2, 3, 21))
    assert max(found) < LARGEST, found
    rows = {row.name: row for row in split.rows}
    assert "tile" in rows["scaled_dot_product_attention"].result


@pytest.fixture
def tiles(grid: RankGrid) -> tuple[Tensor, DistTensor]:
    whole = torch.randn(2, 6, 7, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    return whole, DistTensor.tile_of(whole, Layout(grid, (7, 9)))


# Operations on dimensions that are not tiled, or that keep the tiled ones.
KEPT = {
    "permute": lambda x: x.permute(0, 2, 3, 1),
    "permute by name": lambda x: torch.permute(x, dims=(3, 0, 1, 2)),
    "transpose of the field": lambda x: x.transpose(2, 3) * 2,
    "swapaxes": lambda x: x.swapaxes(0, -1),
    "movedim": lambda x: x.movedim((1, 0), (-1, 1)),
    "unsqueeze": lambda x: x.unsqueeze(2).unsqueeze(-1),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1),
    "view": lambda x: x.view(2, 3, 2, 7, 9),
    "view with a free size": lambda x: x.view(-1, 7, 9),
    "flatten": lambda x: torch.flatten(x, 0, 1),
    "unflatten": lambda x: x.unflatten(1, (-1, 2)),
    "reshape of channels last": lambda x: x.permute(0, 2, 3, 1).reshape(2, 7, 9, 2, 3),
    "chunk": lambda x: torch.chunk(x, chunks=2, dim=1)[1],
    "split": lambda x: x.split([1, 5], dim=1)[1],
    "unbind": lambda x: x.unbind(1)[3],
    "narrow": lambda x: x.narrow(1, 2, 3),
    "index": lambda x: x[:, 1:5:2, ..., None],
    "number": lambda x: x[1],
    "roll of channels": lambda x: x.roll(2, 1),
    "padding of channels": lambda x: nn.functional.pad(x, (0, 0, 0, 0, 1, 2)),
    "rolled field": lambda x: torch.roll(x, (1, -2), (2, 3)),
    "padded field": lambda x: nn.functional.pad(x, (1, 0, 2, 3), value=2.0),
    "every second cell": lambda x: x[..., ::2, 1::2],
    "mean over channels": lambda x: x.mean(1, keepdim=True),
    "mean without channels": lambda x: x.permute(0, 2, 3, 1).mean(-1),
    "broadcasting": lambda x: x.permute(0, 2, 3, 1) + torch.arange(6.0, dtype=torch.float64),
    "a whole operand": lambda x: x.permute(0, 2, 3, 1) * torch.arange(63.0, dtype=torch.float64).view(7, 9, 1),
    "softmax": lambda x: x.permute(2, 1, 0, 3).softmax(1),
}
# Operations that change tiled dimensions; all ranks get the whole result.
GATHERED = {
    "sequence": lambda x: x.flatten(2).transpose(1, 2),
    "windows": lambda x: x[..., :8].reshape(2, 6, 7, 2, 4) if isinstance(x, Tensor) else x[..., :8].view(2, 6, 7, 2, 4),
    "one row": lambda x: x[:, :, 3],
    "parts of rows": lambda x: x.chunk(3, dim=3)[0],
    "chosen cells": lambda x: x[:, :, torch.tensor([0, 2])],
    "mean over the field": lambda x: x.permute(0, 2, 3, 1).mean((1, 2)),
}


@pytest.mark.parametrize("name", KEPT)
def test_tiled_dimensions_are_kept(name: str, tiles: tuple[Tensor, DistTensor]) -> None:
    whole, x = tiles
    expected, actual = KEPT[name](whole), KEPT[name](x)
    assert isinstance(actual, DistTensor) and actual.shape == expected.shape
    torch.testing.assert_close(actual.whole(), expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", GATHERED)
def test_other_shape_operations_gather(name: str, tiles: tuple[Tensor, DistTensor]) -> None:
    whole, x = tiles
    actual = GATHERED[name](x)
    assert isinstance(actual, Tensor)
    torch.testing.assert_close(actual, GATHERED[name](whole), rtol=1e-14, atol=1e-14)


def test_layers_need_the_tiled_dimensions_at_the_end(tiles: tuple[Tensor, DistTensor], works_afterwards: None) -> None:
    with pytest.raises(NotImplementedError, match="permute it back first"):
        nn.functional.max_pool2d(tiles[1].permute(0, 2, 3, 1), 2)
    with pytest.raises(ValueError, match="cannot combine tiles of different fields"):
        tiles[1].permute(0, 1, 3, 2) + tiles[1]
    with pytest.raises(ValueError, match="cannot view"):
        tiles[1].view(5, -1)


class Sorts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sort(self.conv(x), dim=3).values  # the error names this line


def test_errors_name_the_line_of_the_network(grid: RankGrid, works_afterwards: None) -> None:
    lines = Path(__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.endswith("# the error names this line"))
    with pytest.raises(NotImplementedError, match=rf"'sort' \(sort, .*{Path(__file__).name}:{line}\)"):
        spatial.parallelize(Sorts(), grid, (1, 3, 12, 12))


def test_rejects_dropout_of_attention_weights(grid: RankGrid, works_afterwards: None) -> None:
    net = networks.VisionTransformer(9)
    net.attention.dropout = 0.1
    with pytest.raises(NotImplementedError, match="dropout of attention weights"):
        spatial.parallelize(net, grid, (1, 3, 12, 12))
    spatial.parallelize(net.eval(), grid, (1, 3, 12, 12))
