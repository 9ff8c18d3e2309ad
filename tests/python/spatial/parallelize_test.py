"""parallelize: networks split into tiles train like one process, and unsupported networks raise."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from spatial import networks
from spatial.cases import grids
from torch import nn
from torch.nn import functional as F

import weft
from weft import spatial
from weft.spatial import DistTensor, RankGrid


def squarest(size: int) -> tuple[int, ...]:
    return min(grids(size, 2), key=lambda shape: (abs(shape[0] - shape[1]), shape[0]))


@pytest.fixture(scope="module")
def grid(comm: weft.Communicator) -> RankGrid:
    return RankGrid(*squarest(comm.size))


def data(step: int, shape: tuple[int, ...], classes: int, dense: bool) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(shape, dtype=torch.float64, generator=generator)
    target = torch.randint(classes, (shape[0], *shape[2:]) if dense else shape[:1], generator=generator)
    return x, target


def trained(net: nn.Module, steps: int, shape: tuple[int, ...], classes: int, dense: bool) -> list[float]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        x, target = data(step, shape, classes, dense)
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), target)
        weft.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


NETWORKS = {
    "resnet": (networks.ResNet, (2, 3, 33, 46), 5, False),
    "unet": (networks.UNet, (2, 3, 20, 28), 3, True),
    "flattens": (lambda: networks.Flattens(21, 16), (2, 3, 21, 16), 3, False),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("smallest_tile, steps", [(0, 20), (3, 4)])
def test_training_matches_one_process(name: str, smallest_tile: int, steps: int, grid: RankGrid) -> None:
    make, shape, classes, dense = NETWORKS[name]
    torch.manual_seed(grid.rank)  # all ranks use rank 0's weights
    net = make().double()
    split = spatial.parallelize(copy.deepcopy(net), grid, shape, smallest_tile=smallest_tile)
    for parameter in net.parameters():
        parameter.data = grid.comm.broadcast(parameter.data)
    torch.manual_seed(0)
    expected = trained(net, steps, shape, classes, dense)
    actual = trained(split, steps, shape, classes, dense)
    assert actual == pytest.approx(expected, rel=1e-8, abs=1e-10)
    state = split.whole_state_dict()
    assert list(state) == list(net.state_dict())
    for key, value in net.state_dict().items():
        assert torch.allclose(state[key].to(value.dtype), value, rtol=1e-7, atol=1e-9), key


def test_weights_load_from_the_unsplit_network(grid: RankGrid) -> None:
    torch.manual_seed(1)
    net = networks.Flattens(21, 16).double()
    split = spatial.parallelize(networks.Flattens(21, 16).double(), grid, (3, 21, 16))
    split.load_state_dict(net.state_dict())
    x = data(0, (2, 3, 21, 16), 3, False)[0]
    assert torch.allclose(split(x), net(x), rtol=1e-12, atol=1e-12)
    back = networks.Flattens(21, 16).double()
    back.load_state_dict(split.whole_state_dict())
    assert torch.equal(back.fc1.weight, net.fc1.weight)


def test_split_weights_use_less_memory(grid: RankGrid) -> None:
    split = spatial.parallelize(networks.Flattens(36, 36), grid, (3, 36, 36))
    whole = 4 * 16 * 16 * 7
    assert split.fc1.weight.numel() == pytest.approx(whole / grid.size, rel=0.3)


def test_input_may_be_whole_or_a_tile(grid: RankGrid) -> None:
    split = spatial.parallelize(networks.UNet(), grid, (1, 3, 20, 28))
    x = torch.randn(2, 3, 20, 28, generator=torch.Generator().manual_seed(0))
    y = split(x)
    assert isinstance(y, DistTensor) and y.shape == (2, 3, 20, 28)
    tile = DistTensor.tile_of(x, y.layout)
    assert torch.equal(split(tile.local).local, y.local)
    assert torch.equal(split(tile).local, y.local)


def test_explain_names_layers_tiles_and_bytes(grid: RankGrid, capfd: pytest.CaptureFixture[str]) -> None:
    split = spatial.parallelize(networks.UNet(), grid, (1, 3, 20, 28))
    table = split.explain()
    assert ("merge1.0" in capfd.readouterr().out) == (grid.rank == 0)
    assert "down1.0" in table and "Conv2d" in table and "1x3x20x28" in table
    tile = tuple(-(-n // e) for n, e in zip((20, 28), grid.extents, strict=True))
    rows = {row.name: row for row in split.rows}
    if grid.size == 2:  # one row of 20 cells above or below, or one column: 4 channels of float32
        cut = 0 if grid.extents[0] == 2 else 1
        assert rows["down1.3"].traffic.halo_bytes == 4 * 4 * (20, 28)[1 - cut]
    assert rows["down1.0"].weight_bytes == (4 * 3 * 9 + 4) * 4
    if grid.rank == 0:
        assert f"tile {tile[0]}x{tile[1]}" in table


def test_small_tiles_are_gathered_and_split_again(grid: RankGrid) -> None:
    split = spatial.parallelize(networks.UNet(), grid, (1, 3, 20, 28), smallest_tile=4)
    notes = [row.note for row in split.rows]
    assert ("gathered" in notes) == (grid.size > 1)
    x = torch.randn(1, 3, 20, 28)
    assert isinstance(split(x), DistTensor)


def test_dropout_does_not_depend_on_the_split(grid: RankGrid) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Dropout(0.4), nn.Dropout2d(0.5))
    split = spatial.parallelize(net, grid, (1, 3, 12, 10))
    alone = spatial.parallelize(net, RankGrid(1, 1, comm=grid.comm.split(grid.rank)), (1, 3, 12, 10))
    for network in (split, alone):
        for i, layer in enumerate(network.children()):
            if isinstance(layer, spatial.Dropout | spatial.Dropout2d):
                layer.seed = 17 + i
    x = torch.randn(2, 3, 12, 10, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        y, whole = split(x), alone(x).local
        assert torch.allclose(y.local, whole[(..., *y.layout.tile())], atol=1e-6)
        assert 0.4 < (whole == 0).double().mean() < 0.95


class Transposes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(self.conv(x), 2)


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class FlattensBatch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.normalize(x.flatten(1))


@pytest.mark.parametrize(
    "net, text",
    [
        (Transposes(), "cannot split 'cumsum'"),
        (Branches(), "cannot follow the forward function of Branches"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(10, 2)), "cannot split '_1' (Linear)"),
        (nn.Sequential(nn.Conv2d(3, 4, 30)), "does not fit into"),
        (nn.Sequential(nn.InstanceNorm2d(3, track_running_stats=True)), "track_running_stats"),
        (FlattensBatch(), "not defined for flattened tiles"),
        (nn.Sequential(nn.MaxPool2d(2, return_indices=True)), "'max_pool2d_with_indices' is not defined"),
        (nn.Sequential(nn.Conv2d(3, 4, 3, padding=12, padding_mode="reflect")), "reflect needs a field of at least"),
    ],
)
def test_unsupported_layers_raise_and_are_named(
    net: nn.Module, text: str, grid: RankGrid, works_afterwards: None
) -> None:
    with pytest.raises(NotImplementedError) as raised:
        spatial.parallelize(net, grid, (1, 3, 12, 12))
    assert text in str(raised.value)


def test_grid_that_does_not_match_the_ranks_raises(comm: weft.Communicator, works_afterwards: None) -> None:
    with pytest.raises((ValueError, weft.Disagreement)) as raised:
        RankGrid(comm.size + 1, 1)
    assert f"needs {comm.size + 1} ranks" in str(raised.value)


def test_input_of_another_size_raises(grid: RankGrid, works_afterwards: None) -> None:
    split = spatial.parallelize(networks.UNet(), grid, (1, 3, 20, 28))
    with pytest.raises(ValueError, match="was split for inputs of"):
        split(torch.randn(1, 3, 24, 28))


def test_mesh_can_replace_a_grid(comm: weft.Communicator) -> None:
    mesh = weft.Mesh(height=comm.size, width=1)
    split = spatial.parallelize(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1)), mesh, (1, 3, 12, 12))
    assert split.grid.extents == (comm.size, 1)
    assert math.prod(split(torch.randn(1, 3, 12, 12)).local.shape[2:]) == 12 * 12 // comm.size


def chained() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1), nn.Sigmoid(), nn.Conv2d(4, 4, 5, padding=2), nn.MaxPool2d(2), nn.Tanh()),
        *(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding="same"), nn.ReLU()),
        *(nn.Conv2d(4, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")),
    )


def normalized() -> nn.Sequential:
    """Layers that the split network runs through torch's own modules, with their less common options."""
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4, momentum=None), nn.Tanh()),
        *(nn.ConvTranspose2d(4, 4, 3, stride=2, output_padding=1), nn.InstanceNorm2d(4, affine=True)),
        *(nn.BatchNorm2d(4, affine=False, track_running_stats=False), nn.Conv2d(4, 3, 3)),
    )


def test_normalization_with_other_options_matches_one_process(grid: RankGrid) -> None:
    torch.manual_seed(5)
    net = normalized().double()
    shape = (2, 3, 9, 11)
    split = spatial.parallelize(copy.deepcopy(net), grid, shape)
    for step in range(3):
        x, _ = data(step, shape, 3, True)
        torch.testing.assert_close(split(x).whole(), net(x))
    torch.testing.assert_close(split.whole_state_dict(), dict(net.state_dict()))
    split.eval()
    net.eval()
    torch.testing.assert_close(split(x).whole(), net(x))


def test_a_transposed_convolution_takes_an_output_size(grid: RankGrid) -> None:
    torch.manual_seed(6)
    layer = spatial.ConvTranspose2d(2, 3, 3, stride=2).double()
    x, _ = data(0, (2, 2, 8, 9), 3, True)
    tiles = DistTensor.tile_of(x, spatial.Layout(grid, (8, 9)))
    size = [18, 20]
    torch.testing.assert_close(layer(tiles, output_size=size).whole(), layer(x, output_size=size))


@pytest.mark.parametrize("regions", [True, "auto", [["0", "1", "2"], ["7", "8", "9"]]])
def test_training_with_halo_regions_matches_one_process(regions: object, grid: RankGrid) -> None:
    torch.manual_seed(4)
    net = chained().double()
    shape = (2, 3, 21, 26)
    split = spatial.parallelize(copy.deepcopy(net), grid, shape, halo_regions=regions)
    assert list(split.whole_state_dict()) == list(net.state_dict())
    losses = [[], []]
    for k, network in enumerate((net, split)):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
        for step in range(4):
            x, target = data(step, shape, 3, True)
            optimizer.zero_grad()
            loss = F.cross_entropy(network(x), target[:, :10, :13])
            weft.backward(loss)
            optimizer.step()
            losses[k].append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-9)


def test_halo_regions_exchange_once_and_appear_in_explain(grid: RankGrid) -> None:
    apart = spatial.parallelize(chained(), grid, (1, 3, 24, 24))
    shared = spatial.parallelize(chained(), grid, (1, 3, 24, 24), halo_regions=True)
    if grid.size == 1:
        assert "halo region" not in shared.explain(), "nothing is exchanged"
        return
    assert "halo region" not in apart.explain()
    table = shared.explain()
    assert "halo region 0" in table
    assert "halo region 1" in table, "batch normalization ends a region: its statistics must count each cell once"
    assert sum(row.traffic.exchanges for row in apart.rows) == 6
    assert sum(row.traffic.exchanges for row in shared.rows) == 3


@pytest.mark.parametrize(
    "regions, message",
    [
        ([["0", "2"]], "'2' must directly follow '0'"),
        ([["5", "6"]], "'6' cannot be in a halo region"),
        ([["9", "10"]], "'10' cannot be in a halo region"),
        ([["nowhere"]], "'nowhere' cannot be"),
        ([["1"]], "no layer that needs a halo"),
        ("always", "halo_regions must be True, False, 'auto'"),
    ],
)
def test_invalid_halo_regions_are_rejected(regions: object, message: str, grid: RankGrid) -> None:
    with pytest.raises(ValueError, match=message):
        spatial.parallelize(chained(), grid, (1, 3, 24, 24), halo_regions=regions)
