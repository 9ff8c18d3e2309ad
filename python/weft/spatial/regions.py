"""Halo regions: consecutive layers of a split network that share one exchange of a halo wide enough for all of them.

The library places regions, plans their exchanges and decides by measured times. This module adapts nn.Modules and
fx graphs to it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from .functional import as_list, paddings
from .tensor import DistTensor, Layout
from .traffic import Traffic, TrafficWatch

__all__ = ["HaloRegion", "Regions", "insert", "placed"]

# True: all possible regions. "auto": those that are faster when measured. Or the names of each region's layers.
Regions = bool | str | Sequence[Sequence[str]]

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
# Layers that compute each cell from the same cell of their input. Layers that use statistics or a cell's position do
# not belong here.
_ELEMENTWISE = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Sigmoid, nn.Tanh),
    *(nn.Softplus, nn.Softsign, nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh, nn.LogSigmoid, nn.Identity),
)


def _spread(value: Any, dims: int) -> list[int]:
    values = as_list(value)
    return values * dims if len(values) == 1 else values


def _has_windows(module: nn.Module) -> bool:
    return isinstance(module, (*_CONVOLUTIONS, *_POOLS))


def _fits(module: nn.Module) -> bool:
    """Returns whether a layer can be part of a region."""
    if isinstance(module, _CONVOLUTIONS):
        return module.padding_mode == "zeros"
    return (isinstance(module, _POOLS) and not module.return_indices) or type(module) in _ELEMENTWISE


def _windows(module: Any, dims: int) -> list[int]:
    """Returns six numbers per dimension, as the library expects them; none for layers without windows."""
    if not _has_windows(module):
        return []
    kernel, stride, dilation = (_spread(v, dims) for v in (module.kernel_size, module.stride, module.dilation))
    before, behind = paddings(module.padding, kernel, dilation, stride, dims)
    before, behind = _spread(before, dims), _spread(behind or before, dims)
    ceil = int(getattr(module, "ceil_mode", False))
    columns = zip(kernel, stride, before, behind, dilation, strict=True)
    return [number for column in columns for number in (*column, ceil)]


def _weights(module: Any) -> list[Tensor]:
    if not isinstance(module, _CONVOLUTIONS):
        return []
    return [module.weight] if module.bias is None else [module.weight, module.bias]


def _fill(module: nn.Module) -> float:
    return -float("inf") if isinstance(module, _POOLS) else 0.0


class HaloRegion(nn.Module):
    """Runs the layers of ``chain``, which still belong to the network, on tiles of ``layout``."""

    def __init__(self, chain: Sequence[nn.Module], layout: Layout) -> None:
        super().__init__()
        self.chain = list(chain)  # a list, so that parameters() and state_dict() do not list them twice
        self.layout = layout
        windows = [_windows(module, layout.dims) for module in chain if _has_windows(module)]
        self.region = torch.ops.weft.halo_region(layout.handle, windows)
        self.outputs = Layout.wrap(self.region.outputs(), layout.grid)
        self.fill = _fill(next(module for module in chain if _has_windows(module)))

    def forward(self, x: Any) -> Any:
        if not isinstance(x, DistTensor) or x.layout != self.layout:
            return self.one_by_one(x)
        # Ranks without results share the weights too, because all ranks add up their gradients.
        weights = [weight for module in self.chain for weight in _weights(module)]
        shared = iter(torch.ops.weft.share(weights, self.layout.grid.id) if weights else [])
        y = torch.ops.weft.halo_exchange(x.local, self.region.plan(), self.fill)
        if not all(self.outputs.tile_sizes()):
            channels = [module.out_channels for module in self.chain if isinstance(module, _CONVOLUTIONS)]
            shape = (y.shape[0], channels[-1] if channels else y.shape[1], *self.outputs.tile_sizes())
            return DistTensor(y.reshape(-1)[:0].view(shape), self.outputs)
        layer = 0
        for module in self.chain:
            if not _has_windows(module):
                y = module(y)
                continue
            own = [next(shared) for _ in _weights(module)]
            y = torch.ops.weft.halo_region_layer(self.region, layer, y, own, getattr(module, "groups", 1))
            layer += 1
        return DistTensor(y, self.outputs)

    def one_by_one(self, x: Any) -> Any:
        """Runs each layer with its own exchange."""
        for module in self.chain:
            x = module(x)
        return x

    def traffic(self, tile: Tensor) -> Traffic:
        """Returns the traffic of the exchange of such a tile on this rank."""
        with torch.no_grad(), TrafficWatch() as watch:
            torch.ops.weft.halo_exchange(tile, self.region.plan(), self.fill)
        return watch.traffic


def placed(
    network: fx.GraphModule, tiles: Mapping[str, DistTensor], regions: Regions
) -> list[tuple[list[fx.Node], HaloRegion]]:
    """Returns the regions of a network. ``tiles`` maps names of nodes to their results on the meta device."""
    if regions is False or not tiles:
        return []
    if regions is True or regions == "auto":
        chains = _found(network, tiles)
    elif isinstance(regions, str):
        raise ValueError(f"weft: halo_regions must be True, False, 'auto' or lists of layer names, got '{regions}'")
    else:
        chains = [_named(network, tiles, list(names)) for names in regions]
    result = []
    for nodes in chains:
        modules = [network.get_submodule(str(node.target)) for node in nodes]
        inputs = tiles[_source(nodes[0]).name]
        region = HaloRegion(modules, inputs.layout)
        if regions != "auto" or _is_faster(region, inputs.local.shape):
            result.append((nodes, region))
    return result


def _source(node: fx.Node) -> fx.Node:
    """Returns the node whose result a layer reads."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    return source


def _joins(network: fx.GraphModule, tiles: Mapping[str, DistTensor], node: fx.Node) -> bool:
    """Returns whether a node can be in a region: a layer that fits, with tiles as input and as result."""
    if node.op != "call_module" or len(node.args) != 1 or node.name not in tiles:
        return False
    source = node.args[0]
    module = network.get_submodule(str(node.target))
    return isinstance(source, fx.Node) and source.name in tiles and _fits(module)


def _found(network: fx.GraphModule, tiles: Mapping[str, DistTensor]) -> list[list[fx.Node]]:
    nodes = list(network.graph.nodes)
    numbers = {node: i for i, node in enumerate(nodes)}
    grid = next(iter(tiles.values())).layout.grid
    joins = [_joins(network, tiles, node) for node in nodes]
    sources = [numbers[_source(node)] if join else -1 for node, join in zip(nodes, joins, strict=True)]
    windows = [
        _windows(network.get_submodule(str(node.target)), len(grid.extents)) if join else []
        for node, join in zip(nodes, joins, strict=True)
    ]
    users = [len(node.users) for node in nodes]
    chains = torch.ops.weft.halo_region_chains(sources, users, list(map(int, joins)), windows, list(grid.extents))
    return [[nodes[i] for i in chain] for chain in chains]


def _named(network: fx.GraphModule, tiles: Mapping[str, DistTensor], names: list[str]) -> list[fx.Node]:
    by_target = {str(node.target): node for node in network.graph.nodes if node.op == "call_module"}
    nodes: list[fx.Node] = []
    for name in names:
        node = by_target.get(name)
        if node is None or not _joins(network, tiles, node):
            raise ValueError(
                f"weft: '{name}' cannot be in a halo region; only convolutions with zero padding, max pooling "
                "and activations on tiles can"
            )
        if nodes and (node.args[0] is not nodes[-1] or len(nodes[-1].users) != 1):
            raise ValueError(
                f"weft: the layers of a halo region must form a chain: '{name}' must directly follow "
                f"'{names[len(nodes) - 1]}', whose output no other layer may read"
            )
        nodes.append(node)
    if not any(_has_windows(network.get_submodule(name)) for name in names):
        raise ValueError(
            f"weft: the halo region {names} has no layer that needs a halo; add a convolution or pooling layer"
        )
    return nodes


@torch.no_grad()
def _is_faster(region: HaloRegion, shape: Sequence[int]) -> bool:
    """Times the forward pass of both ways on the network's own sizes. Collective; the slowest rank decides."""
    parameters = [p for module in region.chain for p in module.parameters()]
    x = DistTensor(torch.zeros(shape, dtype=parameters[0].dtype if parameters else None), region.layout)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(torch.ops.weft.halo_region_timing_rounds() + 1):
        for samples, run in zip(times, (region.forward, region.one_by_one), strict=True):
            start = time.perf_counter()
            run(x)
            samples.append(time.perf_counter() - start)
    shared, each = (samples[1:] for samples in times)  # the first round warms up
    return bool(torch.ops.weft.halo_region_is_faster(shared, each, region.layout.grid.id))


def insert(network: fx.GraphModule, nodes: Sequence[fx.Node], region: HaloRegion, name: str) -> None:
    """Replaces the nodes of a region with a call of the region; its modules keep their names."""
    network.add_module(name, region)
    with network.graph.inserting_before(nodes[0]):
        whole = network.graph.call_module(name, (nodes[0].args[0],))
    nodes[-1].replace_all_uses_with(whole)
    for node in reversed(nodes):
        network.graph.erase_node(node)
