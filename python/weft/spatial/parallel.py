"""parallelize: splits an unmodified network over tiles of its input."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from ..mesh import Mesh
from . import layers, regions
from .flat import FlatTiles, whole
from .tensor import DistTensor, Layout, RankGrid
from .traffic import Traffic, TrafficWatch

__all__ = ["SplitNetwork", "parallelize"]

# Layers that parallelize replaces; other layers call functions that support tiles.
SWAPS: dict[type, Any] = {
    getattr(nn, name): getattr(layers, name)
    for name in "Conv1d Conv2d Conv3d Dropout Dropout1d Dropout2d Dropout3d MultiheadAttention".split()
}


def _swap_of(module: nn.Module) -> Any:
    """Returns the class that replaces a layer, or None."""
    return layers.StochasticDepth if _is_stochastic_depth(module) else SWAPS.get(type(module))


def _is_stochastic_depth(module: nn.Module) -> bool:
    """Whether the layer is torchvision's StochasticDepth, whose noise would differ between ranks."""
    return type(module).__name__ == "StochasticDepth" and type(module).__module__.startswith("torchvision.")


class _Tracer(fx.Tracer):
    record_stack_traces = True  # for error messages

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return _is_stochastic_depth(m) or super().is_leaf_module(m, module_qualified_name)


class Tiles(nn.Module):
    """Converts the input, a whole tensor or this rank's tile, to a tensor in tiles."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout

    def forward(self, x: Tensor | DistTensor) -> DistTensor:
        if isinstance(x, DistTensor):
            return x.repartition(self.layout)
        tail = tuple(x.shape[-self.layout.dims :])
        if tail == self.layout.shape:
            return DistTensor.tile_of(x, self.layout)
        if tail == self.layout.tile_sizes():
            return DistTensor(x, self.layout)
        raise ValueError(
            f"weft: this network was split for inputs of {self.layout.shape}; expected a tensor whose last sizes are "
            f"these or those of this rank's tile, {self.layout.tile_sizes()}; got {tuple(x.shape)}"
        )


class Whole(nn.Module):
    """Gathers tiles; from here on every rank computes on the whole tensor."""

    def forward(self, x: Any) -> Tensor:
        return whole(x)


@dataclass
class Row:
    """A row of explain()."""

    name: str
    kind: str
    result: str
    traffic: Traffic
    weight_bytes: int
    note: str


class SplitNetwork(fx.GraphModule):
    """A network on tiles. Its parameters have the names of the unsplit network's."""

    rows: list[Row]
    grid: RankGrid
    keys: list[str]  # keys of the unsplit network's state, in order

    def explain(self) -> str:
        """Returns a table of layers, tiles and communication on this rank for the given batch; rank 0 prints it."""
        lines = [f"{'layer':28} {'kind':18} {'result':34} {'halo':>10} {'reduced':>10} {'gradients':>10}  note"]
        for row in self.rows:
            numbers = (row.traffic.halo_bytes, row.traffic.reduced_bytes, row.weight_bytes)
            text = " ".join(f"{_readable(n):>10}" for n in numbers)
            lines.append(f"{row.name:28} {row.kind:18} {row.result:34} {text}  {row.note}")
        table = "\n".join(lines)
        if self.grid.rank == 0:
            print(table, flush=True)
        return table

    def whole_state_dict(self) -> dict[str, Tensor]:
        """Returns the state of the unsplit network on every rank. Collective if a linear layer is split."""
        state = dict(self.state_dict())
        for name, module in self.named_modules():
            if isinstance(module, layers.TileLinear):
                state[f"{name}.weight"] = module.whole_weight()
        return {key: state[key] for key in self.keys if key in state}


def _readable(n: int) -> str:
    if n == 0:
        return "-"
    return f"{n} B" if n < 10_000 else f"{n / 1024:.1f} KiB" if n < 10 << 20 else f"{n / 2**20:.1f} MiB"


def parallelize(
    net: nn.Module,
    grid: RankGrid | Mesh | Sequence[int],
    input_shape: Sequence[int],
    smallest_tile: int = 1,
    halo_regions: regions.Regions = False,
) -> SplitNetwork:
    """Returns ``net`` with its input cut into tiles over ``grid``. All ranks get rank 0's weights. Collective.

    ``input_shape`` is the shape of the whole input, [batch, channels, ...] or [channels, ...]; later batches may have
    another size. The network keeps the parameters of ``net`` and their names. If a tile would have fewer cells than
    ``smallest_tile`` along a dimension that is cut, the tensor is gathered and every rank computes on all of it. A
    linear layer after flatten is split by its inputs. Raises NotImplementedError for a layer that cannot be split.

    ``halo_regions``: consecutive convolutions, activations and max poolings share one wider exchange. True: all that
    can; "auto": those whose forward pass with ``input_shape`` is measured to be faster; or the names of each region's
    layers, such as ``[["conv1", "relu1", "conv2"]]``.
    """
    tiles = _grid_of(grid)
    dims = len(tiles.extents)
    shape = list(input_shape)
    if len(shape) == dims + 1:
        shape.insert(0, 1)
    if len(shape) != dims + 2:
        raise ValueError(
            f"weft: parallelize: a grid of {dims} dimensions needs an input_shape [batch, channels, ...] or "
            f"[channels, ...] with {dims} sizes after the channels, got {list(input_shape)}"
        )
    network = _traced(net)
    network.grid, network.keys = tiles, list(net.state_dict())
    _swap_layers(network, tiles)
    layout = Layout(tiles, shape[2:])
    _add_entrance(network, layout)
    plan = _Propagation(network, smallest_tile)
    plan.run(torch.empty(shape, device="meta"))
    _send_weights(network, tiles)
    _apply(plan, network)
    _share_exchanges(plan, network, halo_regions)
    return network


def _grid_of(grid: RankGrid | Mesh | Sequence[int]) -> RankGrid:
    if isinstance(grid, RankGrid):
        return grid
    if isinstance(grid, Mesh):
        axes = [name for name in ("depth", "height", "width") if name in grid.shape]
        axes = axes if len(axes) < 3 or grid.shape["depth"] > 1 else axes[1:]
        if not axes:
            raise ValueError(
                "weft: parallelize: the mesh must have axes named height and width, and depth for volumes; "
                f"got {', '.join(grid.shape)}"
            )
        return RankGrid(*(grid.shape[name] for name in axes), comm=grid.comm(*axes))
    return RankGrid(*grid)


def _traced(net: nn.Module) -> SplitNetwork:
    try:
        graph = _Tracer().trace(net)
    except Exception as error:
        raise NotImplementedError(
            f"weft: parallelize cannot follow the forward function of {type(net).__name__} (torch.fx: {error}). "
            "Control flow that depends on values cannot be split; use the layers of weft.spatial instead."
        ) from error
    return SplitNetwork(net, graph, "SplitNetwork")


def _swap_layers(network: SplitNetwork, grid: RankGrid) -> None:
    for name, module in list(network.named_modules()):
        swap = _swap_of(module)
        if swap is None:
            continue
        new = swap.__new__(swap)
        new.__dict__.update(module.__dict__)
        if hasattr(swap, "comm"):
            new.comm = grid.id
        network.set_submodule(name, new)


def _add_entrance(network: SplitNetwork, layout: Layout) -> None:
    entrances = [node for node in network.graph.nodes if node.op == "placeholder"]
    if len(entrances) != 1:
        names = ", ".join(node.name for node in entrances)
        raise NotImplementedError(f"weft: parallelize supports only networks with one input, got inputs: {names}")
    network.add_module("_tiles", Tiles(layout))
    with network.graph.inserting_after(entrances[0]):
        entrance = network.graph.call_module("_tiles", (entrances[0],))
    entrances[0].replace_all_uses_with(entrance, lambda user: user is not entrance)
    network.recompile()


class _Propagation(fx.Interpreter):
    """Runs the network on meta tensors to find tiles, traffic, and the layers to gather or split."""

    def __init__(self, network: SplitNetwork, smallest_tile: int) -> None:
        # The copy has its own weights but shares the grid and the layouts.
        shared = (getattr(module, name, None) for module in network.modules() for name in ("layout", "grid"))
        without_data = copy.deepcopy(network, {id(value): value for value in shared if value is not None})
        super().__init__(without_data.to("meta"))
        self.extra_traceback = False  # the error names the layer and the line
        for module in without_data.modules():
            if getattr(module, "num_batches_tracked", None) is not None:
                module.num_batches_tracked = torch.tensor(0)  # batch normalization reads it as a number
        self.smallest_tile = smallest_tile
        self.rows: list[Row] = []
        self.gathered: list[str] = []
        self.linears: dict[str, tuple[int, Layout]] = {}
        self.tiles: dict[str, DistTensor] = {}  # results of the nodes that return tiles, by name

    def run_node(self, n: fx.Node) -> Any:
        try:
            with torch.no_grad(), TrafficWatch() as watch:
                result, note = self._result(n)
        except Exception as error:
            raise NotImplementedError(
                f"weft: parallelize cannot split '{n.name}' ({_kind(self, n)}{_place(n)}): {error}"
            ) from error
        if isinstance(result, DistTensor):
            self.tiles[n.name] = result
        if n.op in ("call_module", "call_function", "call_method"):
            self.rows.append(self._row(n, result, watch.traffic, note))
        return result

    def fetch_args_kwargs_from_env(self, n: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns lists that the called function may modify, like the code that torch.fx generates."""
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        return tuple(map(_modifiable, args)), {name: _modifiable(value) for name, value in kwargs.items()}

    def _result(self, n: fx.Node) -> tuple[Any, str]:
        module = self.fetch_attr(str(n.target)) if n.op == "call_module" else None
        if isinstance(module, nn.Linear):
            x = self.fetch_args_kwargs_from_env(n)[0][0]
            if isinstance(x, FlatTiles):
                return self._split_linear(n, module, x), "weights split"
        result = super().run_node(n)
        if isinstance(result, DistTensor) and self._too_small(result.layout) and n.op != "output":
            self.gathered.append(n.name)
            return result.whole(), "gathered"
        return result, "whole" if isinstance(result, Tensor) and n.op != "placeholder" else ""

    def _split_linear(self, n: fx.Node, module: nn.Linear, x: FlatTiles) -> Tensor:
        name, plan = str(n.target), (x.tiles.shape[1], x.layout)
        if self.linears.setdefault(name, plan)[1] != x.layout:
            raise NotImplementedError("it is used on inputs with different tiles; use a separate layer for each")
        part = torch.empty(x.shape[0], module.out_features, device="meta", dtype=x.local.dtype)
        return torch.ops.weft.all_reduce(part, "sum", x.layout.grid.id)

    def _too_small(self, layout: Layout) -> bool:
        cut = [i for i, extent in enumerate(layout.grid.extents) if extent > 1]
        return any(min(layout.parts(i)) < self.smallest_tile for i in cut)

    def _row(self, n: fx.Node, result: Any, traffic: Traffic, note: str) -> Row:
        weights = 0
        if n.op == "call_module" and note != "weights split" and isinstance(result, DistTensor):
            weights = sum(p.numel() * p.element_size() for p in self.fetch_attr(str(n.target)).parameters())
        name = str(n.target) if n.op == "call_module" else n.name
        return Row(name, _kind(self, n), _describe(result), traffic, weights, note)


def _modifiable(value: Any) -> Any:
    return list(map(_modifiable, value)) if isinstance(value, list) else value


def _kind(interpreter: fx.Interpreter, n: fx.Node) -> str:
    if n.op == "call_module":
        return type(interpreter.fetch_attr(str(n.target))).__name__
    return getattr(n.target, "__name__", str(n.target))


def _place(n: fx.Node) -> str:
    """Returns the file and line of the user's code that calls the operation, if torch.fx knows it."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', n.stack_trace or "")
    own = [(file, line) for file, line in frames if "/torch/" not in file]
    return f", {own[-1][0]}:{own[-1][1]}" if own else ""


def _describe(result: Any) -> str:
    if isinstance(result, DistTensor | FlatTiles):
        tile = "x".join(map(str, result.layout.tile_sizes()))
        return f"{'x'.join(map(str, result.shape))}, tile {tile}"
    return "x".join(map(str, result.shape)) if isinstance(result, Tensor) else str(result)


def _apply(plan: _Propagation, network: SplitNetwork) -> None:
    """Inserts the gathers and the split linear layers that the propagation found."""
    network.rows = plan.rows
    for name, (channels, layout) in plan.linears.items():
        linear = network.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        network.set_submodule(name, layers.TileLinear(channels, layout, linear.out_features, unsplit=linear))
    if plan.gathered:
        network.add_module("_whole", Whole())
    for node in list(network.graph.nodes):
        if node.name in plan.gathered:
            with network.graph.inserting_after(node):
                whole = network.graph.call_module("_whole", (node,))
            node.replace_all_uses_with(whole, lambda user, whole=whole: user is not whole)
    network.recompile()


def _share_exchanges(plan: _Propagation, network: SplitNetwork, wanted: regions.Regions) -> None:
    """Inserts halo regions, which exchange once before their first layer, and corrects the traffic in the table."""
    rows = {row.name: row for row in network.rows}
    for number, (nodes, region) in enumerate(regions.placed(network, plan.tiles, wanted)):
        shared = region.traffic(plan.tiles[str(nodes[0].args[0])].local)
        for i, node in enumerate(nodes):
            row = rows[str(node.target)]
            row.traffic, row.note = shared if i == 0 else Traffic(), f"halo region {number}"
        regions.insert(network, nodes, region, f"_region{number}")
    network.recompile()


@torch.no_grad()
def _send_weights(network: SplitNetwork, grid: RankGrid) -> None:
    """Sends rank 0's weights to all ranks."""
    for tensor in [*network.parameters(), *network.buffers()]:
        tensor.copy_(torch.ops.weft.broadcast(tensor, 0, grid.id))
