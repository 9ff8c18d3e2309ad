"""Halo regions: consecutive layers of a split network behind one exchange, of a halo wide enough for all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from .functional import as_list, paddings
from .tensor import DistTensor, Layout, call
from .traffic import Traffic, TrafficWatch

__all__ = ["HaloRegion", "Regions", "chains", "insert"]

# True: wherever layers can share an exchange. "auto": where that was measured to be faster. Or the names of each
# region's layers.
Regions = bool | str | Sequence[Sequence[str]]

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
# Look at each cell by itself, so that cells beyond the tile cost nothing but time. What depends on statistics or on a
# cell's place does not belong here.
_ELEMENTWISE = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Sigmoid, nn.Tanh),
    *(nn.Softplus, nn.Softsign, nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh, nn.LogSigmoid, nn.Identity),
)
_ROUNDS = 3


def _spread(value: Any, dims: int) -> list[int]:
    values = as_list(value)
    return values * dims if len(values) == 1 else values


def _has_windows(module: nn.Module) -> bool:
    return isinstance(module, (*_CONVOLUTIONS, *_POOLS))


def _fits(module: nn.Module) -> bool:
    """Whether a layer can be part of a region."""
    if isinstance(module, _CONVOLUTIONS):
        return module.padding_mode == "zeros"
    return (isinstance(module, _POOLS) and not module.return_indices) or type(module) in _ELEMENTWISE


def _windows(module: Any, dims: int) -> list[int]:
    """Six numbers a dimension, as the library takes them."""
    kernel, stride, dilation = (_spread(v, dims) for v in (module.kernel_size, module.stride, module.dilation))
    before, behind = paddings(module.padding, kernel, dilation, stride, dims)
    before, behind = _spread(before, dims), _spread(behind or before, dims)
    ceil = int(getattr(module, "ceil_mode", False))
    columns = zip(kernel, stride, before, behind, dilation, strict=True)
    return [number for column in columns for number in (*column, ceil)]


class HaloRegion(nn.Module):
    """The layers of ``chain``, which stay the network's own, on tiles of ``layout``."""

    def __init__(self, chain: Sequence[nn.Module], layout: Layout) -> None:
        super().__init__()
        self.chain = list(chain)  # a list hides them from parameters() and state_dict(): they have their names already
        self.layout = layout
        windows = [_windows(module, layout.dims) for module in chain if _has_windows(module)]
        self.region = call(torch.ops.weft.halo_region, layout.handle, windows)
        self.outputs = Layout.wrap(self.region.outputs(), layout.grid)

    def forward(self, x: Any) -> Any:
        if not isinstance(x, DistTensor) or x.layout != self.layout:
            return self.one_by_one(x)
        first = next(module for module in self.chain if _has_windows(module))
        y = call(torch.ops.weft.halo_exchange, x.local, self.region.plan(), _fill(first))
        if not all(self.outputs.tile_sizes()):
            return DistTensor(self._nothing(y), self.outputs)
        layer = 0
        for module in self.chain:
            if not _has_windows(module):
                y = module(y)
                continue
            padding = self.region.padding(layer)
            y = F.pad(y, padding, value=_fill(module)) if any(padding) else y
            y = self._layer(module, y, self.region.native_padding(layer))
            layer += 1
        return DistTensor(y, self.outputs)

    def one_by_one(self, x: Any) -> Any:
        """Each layer with an exchange of its own."""
        for module in self.chain:
            x = module(x)
        return x

    def _layer(self, module: Any, y: Tensor, padding: list[int]) -> Tensor:
        if isinstance(module, _POOLS):
            pool: Callable[..., Tensor] = _MAX_POOLS[self.layout.dims]
            return pool(y, module.kernel_size, module.stride, padding, module.dilation, module.ceil_mode)
        dims = self.layout.dims
        weights = [module.weight] if module.bias is None else [module.weight, module.bias]
        shared = call(torch.ops.weft.share, weights, self.layout.grid.id)
        geometry = (_spread(module.stride, dims), padding, _spread(module.dilation, dims), False, [0] * dims)
        return torch.convolution(y, shared[0], shared[1] if len(shared) > 1 else None, *geometry, module.groups)

    def _nothing(self, y: Tensor) -> Tensor:
        """This rank has no results. It still shares the weights, whose gradients all ranks add up."""
        channels = y.shape[1]
        for module in self.chain:
            if isinstance(module, _CONVOLUTIONS):
                weights = [module.weight] if module.bias is None else [module.weight, module.bias]
                call(torch.ops.weft.share, weights, self.layout.grid.id)
                channels = module.out_channels
        return y.reshape(-1)[:0].view(y.shape[0], channels, *self.outputs.tile_sizes())


def _fill(module: nn.Module) -> float:
    return -float("inf") if isinstance(module, _POOLS) else 0.0


def chains(
    network: fx.GraphModule, layouts: Mapping[str, Layout], regions: Regions
) -> list[tuple[list[fx.Node], HaloRegion]]:
    """The regions of a network: ``layouts`` are those of its nodes' results."""
    if regions is False:
        return []
    if regions is True or regions == "auto":
        found = _found(network, layouts)
    elif isinstance(regions, str):
        raise ValueError(f"weft: halo_regions is True, False, 'auto' or lists of layers, not '{regions}'")
    else:
        found = [_told(network, layouts, list(names)) for names in regions]
    result = []
    for nodes in found:
        modules = [network.get_submodule(str(node.target)) for node in nodes]
        region = HaloRegion(modules, layouts[_source(nodes[0]).name])
        if regions != "auto" or _pays(region, nodes):
            result.append((nodes, region))
    return result


def _source(node: fx.Node) -> fx.Node:
    """Where a layer's input comes from."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    return source


def _link(network: fx.GraphModule, layouts: Mapping[str, Layout], node: fx.Node) -> bool:
    """Whether a node can be in a region: a layer on tiles that fits, with tiles as results."""
    if node.op != "call_module" or len(node.args) != 1 or node.name not in layouts:
        return False
    source = node.args[0]
    module = network.get_submodule(str(node.target))
    return isinstance(source, fx.Node) and source.name in layouts and _fits(module)


def _found(network: fx.GraphModule, layouts: Mapping[str, Layout]) -> list[list[fx.Node]]:
    """The longest chains with at least two layers that exchange, each ending in such a layer."""
    result: list[list[fx.Node]] = []
    seen: set[fx.Node] = set()
    for node in network.graph.nodes:
        if node in seen or not _exchanges(network, layouts, node):
            continue
        chain = [node]
        while len(chain[-1].users) == 1 and _link(network, layouts, user := next(iter(chain[-1].users))):
            chain.append(user)
        while not _exchanges(network, layouts, chain[-1]):
            chain.pop()
        seen.update(chain)
        if sum(_exchanges(network, layouts, link) for link in chain) > 1:
            result.append(chain)
    return result


def _exchanges(network: fx.GraphModule, layouts: Mapping[str, Layout], node: fx.Node) -> bool:
    if not _link(network, layouts, node):
        return False
    module: Any = network.get_submodule(str(node.target))
    layout = layouts[_source(node).name]
    if not _has_windows(module):
        return False
    kernel = _spread(module.kernel_size, layout.dims)
    return any(k > 1 and extent > 1 for k, extent in zip(kernel, layout.grid.extents, strict=True))


def _told(network: fx.GraphModule, layouts: Mapping[str, Layout], names: list[str]) -> list[fx.Node]:
    by_target = {str(node.target): node for node in network.graph.nodes if node.op == "call_module"}
    nodes: list[fx.Node] = []
    for name in names:
        node = by_target.get(name)
        if node is None or not _link(network, layouts, node):
            raise ValueError(
                f"weft: '{name}' cannot be in a halo region; convolutions padded with zeros, max pooling and "
                "activations on tiles can"
            )
        if nodes and (node.args[0] is not nodes[-1] or len(nodes[-1].users) != 1):
            raise ValueError(
                f"weft: a halo region expects layers that follow each other; '{name}' does not follow "
                f"'{names[len(nodes) - 1]}' alone"
            )
        nodes.append(node)
    if not any(_has_windows(network.get_submodule(name)) for name in names):
        raise ValueError(f"weft: the halo region {names} has no layer that needs a halo")
    return nodes


@torch.no_grad()
def _pays(region: HaloRegion, nodes: Sequence[fx.Node]) -> bool:
    """Measures both ways, forward, on this network's own sizes. Collective: the slowest rank counts, for all alike."""
    shape = _source(nodes[0]).meta["tile_shape"]
    parameters = [p for module in region.chain for p in module.parameters()]
    x = DistTensor(torch.zeros(shape, dtype=parameters[0].dtype if parameters else None), region.layout)
    times: dict[str, list[float]] = {"shared": [], "each": []}
    for _ in range(_ROUNDS + 1):
        for name, run in (("shared", region.forward), ("each", region.one_by_one)):
            start = time.perf_counter()
            run(x)
            times[name].append(time.perf_counter() - start)
    medians = torch.tensor([statistics.median(samples[1:]) for samples in times.values()], dtype=torch.float64)
    shared, each = call(torch.ops.weft.all_reduce, medians, "max", region.layout.grid.id).tolist()
    return bool(shared < each)


def insert(network: fx.GraphModule, nodes: Sequence[fx.Node], region: HaloRegion, name: str) -> None:
    """Puts a region in the place of its layers, whose modules keep their names."""
    network.add_module(name, region)
    with network.graph.inserting_before(nodes[0]):
        whole = network.graph.call_module(name, (nodes[0].args[0],))
    nodes[-1].replace_all_uses_with(whole)
    for node in reversed(nodes):
        network.graph.erase_node(node)


def traffic(region: HaloRegion, shape: Sequence[int]) -> Traffic:
    """Of a region's one exchange, on this rank."""
    with torch.no_grad(), TrafficWatch() as watch:
        x = torch.empty(*shape, device="meta")
        fill = _fill(next(module for module in region.chain if _has_windows(module)))
        torch.ops.weft.halo_exchange(x, region.region.plan(), fill)
    return watch.traffic
