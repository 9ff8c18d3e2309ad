"""Random layers on random tiles, and the same in plain torch. Seed and number of ranks determine a case."""

from __future__ import annotations

import copy
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from weft.spatial.regions import HaloRegion

from weft.spatial import DistTensor, Layout, RankGrid
from weft.spatial import functional as S


@dataclass
class Case:
    """A layer and its input, with one function for plain torch and one for tiles."""

    name: str
    x: Tensor
    layout: Layout
    serial: Callable[[Tensor, list[Tensor]], Tensor]
    tiled: Callable[[DistTensor, list[Tensor]], DistTensor | Tensor]
    weights: list[Tensor] = field(default_factory=list)
    cut: Callable[[Tensor], Tensor] | None = None  # selects the part of a weight that this rank holds


def grids(ranks: int, dims: int) -> list[tuple[int, ...]]:
    """Returns all grid shapes of ``dims`` dimensions with this many ranks."""
    extents = [n for n in range(1, ranks + 1) if ranks % n == 0]
    return [shape for shape in itertools.product(extents, repeat=dims) if math.prod(shape) == ranks]


_made: dict[tuple[int, ...], RankGrid] = {}


def grid_of(shape: tuple[int, ...]) -> RankGrid:
    """Returns a cached grid, because each grid has its own communicator."""
    if shape not in _made:
        _made[shape] = RankGrid(*shape)
    return _made[shape]


class Draw:
    """Random choices that are the same on every rank."""

    def __init__(self, seed: int, ranks: int) -> None:
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.dims = self.random.choice([1, 2, 2, 2, 3])
        self.grid = grid_of(self.random.choice(grids(ranks, self.dims)))
        self.largest = {1: 40, 2: 16, 3: 8}[self.dims]

    def between(self, least: int, most: int) -> int:
        return self.random.randint(least, most)

    def each(self, least: int, most: int) -> list[int]:
        return [self.between(least, most) for _ in range(self.dims)]

    def values(self, *shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=self.generator)

    def layout(self, shape: list[int]) -> Layout:
        """Returns balanced or random tiles: uneven, empty, or everything on one rank."""
        if self.random.random() < 0.5:
            return Layout(self.grid, shape)
        parts = []
        for total, count in zip(shape, self.grid.extents, strict=True):
            cuts = sorted(self.between(0, total) for _ in range(count - 1))
            parts.append([end - begin for begin, end in itertools.pairwise([0, *cuts, total])])
        return Layout(self.grid, parts=parts)

    def field(self, channels: int | None = None, least: int = 1) -> tuple[Tensor, Layout]:
        shape = self.each(least, self.largest)
        return self.values(self.between(1, 2), channels or self.between(1, 3), *shape), self.layout(shape)

    def chance(self, probability: float = 0.5) -> bool:
        return self.random.random() < probability


def convolution(draw: Draw) -> Case:
    groups = draw.between(1, 2)
    channels, outputs = groups * draw.between(1, 2), groups * draw.between(1, 2)
    kernel, stride, dilation = draw.each(1, 7 if draw.dims < 3 else 3), draw.each(1, 4), draw.each(1, 3)
    mode = draw.random.choice(["zeros", "zeros", "reflect", "replicate", "circular"])
    padding = draw.each(0, 4 if draw.dims < 3 else 2)
    if draw.chance(0.4):  # as in most networks: outputs as large as inputs, whose edges are computed separately
        kernel, stride = [k - 1 + k % 2 for k in kernel], [1] * draw.dims
        padding = [d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True)]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    shape = [max(draw.between(1, draw.largest), r - 2 * p, p + 1) for r, p in zip(reach, padding, strict=True)]
    x, layout = draw.values(draw.between(1, 2), channels, *shape), draw.layout(shape)
    weights = [draw.values(outputs, channels // groups, *kernel)]
    if draw.chance():
        weights.append(draw.values(outputs))
    edges = draw.random.choice(["auto", "apart", "apart", "padded"])
    function = getattr(F, f"conv{draw.dims}d")

    def serial(x: Tensor, w: list[Tensor]) -> Tensor:
        sides = [p for p in reversed(padding) for _ in range(2)]
        padded = F.pad(x, sides, mode="constant" if mode == "zeros" else mode)
        return function(padded, w[0], w[1] if len(w) > 1 else None, stride, 0, dilation, groups)

    def tiled(x: DistTensor, w: list[Tensor]) -> DistTensor:
        bias = w[1] if len(w) > 1 else None
        return S.conv(x, w[0], bias, stride, padding, dilation, groups, mode, edges)

    return Case(
        f"conv {kernel=} {stride=} {padding=} {dilation=} {mode} {groups=} {edges=}", x, layout, serial, tiled, weights
    )


def transposed_convolution(draw: Draw) -> Case:
    groups = draw.between(1, 2)
    channels, outputs = groups * draw.between(1, 2), groups * draw.between(1, 2)
    kernel, stride, dilation = draw.each(1, 5 if draw.dims < 3 else 3), draw.each(1, 4), draw.each(1, 3)
    padding = draw.each(0, 3)
    output_padding = [draw.between(0, max(s, d) - 1) for s, d in zip(stride, dilation, strict=True)]
    shape = [
        max(draw.between(1, draw.largest // 2), 2 + math.ceil((2 * p - d * (k - 1)) / s))
        for k, s, d, p in zip(kernel, stride, dilation, padding, strict=True)
    ]
    x, layout = draw.values(draw.between(1, 2), channels, *shape), draw.layout(shape)
    weights = [draw.values(channels, outputs // groups, *kernel)]
    if draw.chance():
        weights.append(draw.values(outputs))
    function = getattr(F, f"conv_transpose{draw.dims}d")

    def apply(f: Callable[..., object]) -> Callable[..., object]:
        return lambda x, w: f(x, w[0], w[1] if len(w) > 1 else None, stride, padding, output_padding, groups, dilation)

    name = f"conv_transpose {kernel=} {stride=} {padding=} {output_padding=} {dilation=} {groups=}"
    return Case(name, x, layout, apply(function), apply(S.conv_transpose), weights)


def window(draw: Draw, dilated: bool) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Returns kernel, stride, padding, dilation, and the shape of a field in which the window fits."""
    kernel, stride = draw.each(1, 5 if draw.dims < 3 else 3), draw.each(1, 4)
    padding = [draw.between(0, k // 2) for k in kernel]
    dilation = draw.each(1, 3) if dilated else [1] * draw.dims
    shape = [
        max(draw.between(1, draw.largest), d * (k - 1) + 1 - 2 * p, d)  # torch crashes if a window contains no cell
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    ]
    return kernel, stride, padding, dilation, shape


def max_pool(draw: Draw) -> Case:
    kernel, stride, padding, dilation, shape = window(draw, True)
    ceil = draw.chance()
    x, layout = draw.values(2, 2, *shape), draw.layout(shape)
    function = getattr(F, f"max_pool{draw.dims}d")
    return Case(
        f"max_pool {kernel=} {stride=} {padding=} {dilation=} {ceil=}",
        x,
        layout,
        lambda x, w: function(x, kernel, stride, padding, dilation, ceil),
        lambda x, w: S.max_pool(x, kernel, stride, padding, dilation, ceil),
    )


def average_pool(draw: Draw) -> Case:
    kernel, stride, padding, _, shape = window(draw, False)
    if draw.dims == 3:  # torch does not count the padding here when it checks whether the window fits
        shape = [max(n, k) for n, k in zip(shape, kernel, strict=True)]
    ceil, include = draw.chance(), draw.chance()
    x, layout = draw.values(2, 2, *shape), draw.layout(shape)
    function = getattr(F, f"avg_pool{draw.dims}d")
    return Case(
        f"avg_pool {kernel=} {stride=} {padding=} {ceil=} {include=}",
        x,
        layout,
        lambda x, w: function(x, kernel, stride, padding, ceil, include),
        lambda x, w: S.avg_pool(x, kernel, stride, padding, ceil, include),
    )


def norm_pool(draw: Draw) -> Case:
    kernel, stride, _, _, shape = window(draw, False)
    shape = [max(n, k) for n, k in zip(shape, kernel, strict=True)]
    p, ceil = draw.random.choice([1.0, 2.0, 3.0]), draw.chance()
    x, layout = draw.values(2, 2, *shape).abs() + 0.1, draw.layout(shape)
    function = getattr(F, f"lp_pool{draw.dims}d")
    one = draw.dims == 1  # torch expects a number here, not a list
    return Case(
        f"lp_pool {p=} {kernel=} {stride=} {ceil=}",
        x,
        layout,
        lambda x, w: function(x, p, kernel[0] if one else kernel, stride[0] if one else stride, ceil),
        lambda x, w: S.lp_pool(x, p, kernel, stride, ceil),
    )


def adaptive_pool(draw: Draw) -> Case:
    kind = draw.random.choice(["avg", "max"])
    outputs = [1] * draw.dims if draw.chance(0.3) else draw.each(1, 5)
    x, layout = draw.field()
    function = getattr(F, f"adaptive_{kind}_pool{draw.dims}d")
    ours = S.adaptive_avg_pool if kind == "avg" else S.adaptive_max_pool
    return Case(
        f"adaptive_{kind}_pool {outputs=}", x, layout, lambda x, w: function(x, outputs), lambda x, w: ours(x, outputs)
    )


def interpolation(draw: Draw) -> Case:
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}[draw.dims]
    mode = draw.random.choice(["nearest", "nearest-exact", linear, linear])
    x, layout = draw.field()
    arguments: dict[str, object] = {"mode": mode}
    if mode == linear:
        arguments["align_corners"] = draw.chance()
    if draw.chance():
        arguments["size"] = draw.each(1, draw.largest)
    else:
        arguments["scale_factor"] = [max(draw.random.choice([0.5, 1.5, 2.0, 3.0]), 1 / n) for n in x.shape[2:]]
    return Case(
        f"interpolate {arguments}",
        x,
        layout,
        lambda x, w: F.interpolate(x, **arguments),
        lambda x, w: S.interpolate(x, **arguments),
    )


def batch_norm(draw: Draw) -> Case:
    x, layout = draw.field(least=2)
    channels = x.shape[1]
    mean, var = draw.values(channels), draw.values(channels).abs() + 0.5
    training = draw.chance(0.8)

    def apply(f: Callable[..., object]) -> Callable[..., object]:
        return lambda x, w: f(x, mean.clone(), var.clone(), w[0], w[1], training, 0.1, 1e-5)

    x = x * 3 + 50  # a mean far from 0
    weights = [draw.values(channels), draw.values(channels)]
    return Case(f"batch_norm {training=}", x, layout, apply(F.batch_norm), apply(S.batch_norm), weights)


def group_norm(draw: Draw) -> Case:
    groups = draw.between(1, 3)
    x, layout = draw.field(groups * draw.between(1, 2), least=2)
    weights = [draw.values(x.shape[1]), draw.values(x.shape[1])]
    return Case(
        f"group_norm {groups=}",
        x,
        layout,
        lambda x, w: F.group_norm(x, groups, w[0], w[1]),
        lambda x, w: S.group_norm(x, groups, w[0], w[1]),
        weights,
    )


def layer_norm(draw: Draw) -> Case:
    x, layout = draw.field(least=2)
    shape = list(x.shape[draw.between(1, 2) :])
    weights = [draw.values(*shape), draw.values(*shape)]
    return Case(
        f"layer_norm {shape=}",
        x,
        layout,
        lambda x, w: F.layer_norm(x, shape, w[0], w[1]),
        lambda x, w: S.layer_norm(x, shape, w[0], w[1]),
        weights,
    )


def gaussian(kernel: list[int], channels: int) -> Tensor:
    """Computes neon's local contrast normalization cell by cell."""
    sigma = math.sqrt(sum((k // 2) ** 2 for k in kernel)) / 3 or 1.0
    window = torch.zeros(1, channels, *kernel, dtype=torch.float64)
    for cell in itertools.product(*map(range, kernel)):
        distance = sum((i - k // 2) ** 2 for i, k in zip(cell, kernel, strict=True))
        window[(slice(None), slice(None), *cell)] = math.exp(-distance / (2 * sigma**2))
    return window / window.sum()


def contrast_norm(draw: Draw) -> Case:
    kernel = [2 * draw.between(0, 3 if draw.dims < 3 else 1) + 1 for _ in range(draw.dims)]
    x, layout = draw.field(least=2)
    window = gaussian(kernel, x.shape[1])
    function = getattr(F, f"conv{draw.dims}d")
    padding = [k // 2 for k in kernel]

    def serial(x: Tensor, w: list[Tensor]) -> Tensor:
        centred = x - function(x, window, padding=padding)
        spread = function(centred * centred, window, padding=padding).sqrt()
        return centred / torch.where(spread == 0, torch.ones_like(spread), spread)

    if math.prod(kernel) * x.shape[1] == 1:  # a single value minus its mean gives 0 / 0, which cannot be compared
        x = torch.zeros_like(x)
        return Case(f"contrast_norm {kernel=}", x, layout, lambda x, w: x * 0, lambda x, w: S.contrast_norm(x, kernel))
    return Case(f"contrast_norm {kernel=}", x, layout, serial, lambda x, w: S.contrast_norm(x, kernel))


def local_geometry(draw: Draw) -> tuple[list[int], list[int], list[int], Tensor, Layout, Layout, Tensor]:
    kernel, stride, padding = draw.each(1, 4 if draw.dims < 3 else 2), draw.each(1, 2), draw.each(0, 2)
    shape = [max(draw.between(2, draw.largest), k) for k in kernel]
    x, layout = draw.values(2, 2, *shape), draw.layout(shape)
    handle = torch.ops.weft.local_filter_outputs(layout.handle, kernel, stride, padding)
    outputs = Layout.wrap(handle, layout.grid)
    return kernel, stride, padding, x, layout, outputs, draw.values(3, *outputs.shape, 2, *kernel)


def local_reference(x: Tensor, weight: Tensor, kernel: list[int], stride: list[int], padding: list[int]) -> Tensor:
    """Computes each output position separately."""
    padded = F.pad(x, [p for p in reversed(padding) for _ in range(2)])
    places = weight.shape[1 : 1 + len(kernel)]
    columns = []
    for place in itertools.product(*map(range, places)):
        cells = tuple(slice(o * s, o * s + k) for o, s, k in zip(place, stride, kernel, strict=True))
        patch = padded[(slice(None), slice(None), *cells)].flatten(1)
        columns.append(patch @ weight[(slice(None), *place)].flatten(1).T)
    return torch.stack(columns, -1).view(x.shape[0], weight.shape[0], *places)


def local_filter(draw: Draw) -> Case:
    kernel, stride, padding, x, layout, outputs, weight = local_geometry(draw)
    return Case(
        f"local_filter {kernel=} {stride=} {padding=}",
        x,
        layout,
        lambda x, w: local_reference(x, w[0], kernel, stride, padding),
        lambda x, w: S.local_filter(x, w[0], stride, padding),
        [weight],
        lambda w: w[(slice(None), *outputs.tile())],
    )


def local_defilter(draw: Draw) -> Case:
    kernel, stride, padding, x, layout, outputs, weight = local_geometry(draw)
    y = draw.values(2, 3, *outputs.shape)

    def serial(y: Tensor, w: list[Tensor]) -> Tensor:
        """Computes the transpose of the filter with autograd."""
        zeros = torch.zeros_like(x).requires_grad_()
        forward = local_reference(zeros, w[0], kernel, stride, padding)
        return torch.autograd.grad(forward, zeros, y, create_graph=True)[0]

    return Case(
        f"local_defilter {kernel=} {stride=} {padding=}",
        y,
        outputs,
        serial,
        lambda y, w: S.local_defilter(y, w[0], layout, stride, padding),
        [weight],
        lambda w: w[(slice(None), *outputs.tile())],
    )


def linear(draw: Draw) -> Case:
    x, layout = draw.field()
    outputs = draw.between(1, 4)
    weight = draw.values(outputs, *x.shape[1:])
    return Case(
        "linear",
        x,
        layout,
        lambda x, w: F.linear(x.flatten(1), w[0].flatten(1)),
        lambda x, w: S.linear(x, w[0]),
        [weight],
        lambda w: w[(slice(None), slice(None), *layout.tile())],
    )


def cross_entropy(draw: Draw) -> Case:
    x, layout = draw.field(4)
    target = torch.randint(4, (x.shape[0], *x.shape[2:]), generator=draw.generator)
    target[draw.values(*target.shape) > 1] = -100
    if (target == -100).all():
        target.view(-1)[0] = 1
    weight = draw.values(4).abs() + 0.1 if draw.chance() else None
    reduction = draw.random.choice(["mean", "sum"])
    smoothing = 0.1 if draw.chance(0.3) else 0.0
    arguments = {"reduction": reduction, "label_smoothing": smoothing}
    return Case(
        f"cross_entropy {arguments} {weight is not None=}",
        x,
        layout,
        lambda x, w: F.cross_entropy(x, target, weight, **arguments),
        lambda x, w: S.cross_entropy(x, DistTensor.tile_of(target, layout), weight, **arguments),
    )


def repartition(draw: Draw) -> Case:
    x, layout = draw.field()
    to = draw.layout(list(layout.shape))
    return Case(f"repartition to {to}", x, layout, lambda x, w: x * 1, lambda x, w: x.repartition(to))


def through_whole(draw: Draw) -> Case:
    """Gathers the tensor, computes the same on all ranks, and splits it again."""
    x, layout = draw.field()
    to = draw.layout(list(layout.shape))
    return Case(
        "whole and back",
        x,
        layout,
        lambda x, w: x * x.mean(1, keepdim=True),
        lambda x, w: DistTensor.retile((lambda y: y * y.mean(1, keepdim=True))(x.whole()), to),
    )


def several(draw: Draw) -> Case:
    """A small network: skip connection, pooling, upsampling, concatenation, a gate from the whole image."""
    x, layout = draw.field(2, least=4)
    weights = [draw.values(3, 2, *[3] * draw.dims), draw.values(3, 3, *[3] * draw.dims), draw.values(3, 3)]
    conv, pool = getattr(F, f"conv{draw.dims}d"), getattr(F, f"max_pool{draw.dims}d")

    def network(x: object, w: list[Tensor]) -> object:
        y = torch.relu(conv(x, w[0], padding=1))
        small = conv(pool(y, 2), w[1], padding=1)
        large = F.interpolate(small, size=list(x.shape[2:]), mode="nearest")
        both = torch.cat([y, large], 1)
        gate = torch.sigmoid(F.linear(y.mean(list(range(2, 2 + draw.dims))), w[2]))
        return torch.cat([large * gate[(..., *[None] * draw.dims)], both + 1], 1)

    # The gate's weights are applied to whole tensors, so every rank computes the same result.
    def tiled(x: DistTensor, w: list[Tensor]) -> object:
        return network(x, w)

    return Case("network", x, layout, network, tiled, weights)


def _least_field(chain: list[nn.Module], dims: int) -> list[int]:
    """With fewer cells the last layer would have no outputs, or torch would crash on a window without cells."""
    cells = [1] * dims
    for module in reversed(chain):
        if hasattr(module, "kernel_size"):
            window = zip(cells, module.kernel_size, module.stride, module.padding, module.dilation, strict=True)
            cells = [max(d, (n - 1) * s + d * (k - 1) + 1 - 2 * p) for n, k, s, p, d in window]
    return cells


def halo_region(draw: Draw) -> Case:
    """Up to four layers that share one exchange: convolutions, max pooling, activations that are not 0 at 0."""
    kinds = [draw.random.choice(["conv", "conv", "pool"]) for _ in range(draw.between(1, 3 if draw.dims < 3 else 2))]
    channels, chain, weights = 2, [], []
    conv, pool = getattr(nn, f"Conv{draw.dims}d"), getattr(nn, f"MaxPool{draw.dims}d")
    for kind in ["conv", *kinds]:
        kernel, stride, dilation = draw.each(1, 4), draw.each(1, 2), draw.each(1, 2)
        if kind == "pool":
            half = [min(k // 2, d * (k - 1) // 2) for d, k in zip(dilation, kernel, strict=True)]
            chain.append(pool(kernel, stride, half, dilation))
        else:
            outputs = draw.between(1, 3)
            same = [d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True)]
            chain += [conv(channels, outputs, kernel, stride, same, dilation), nn.Softplus()]
            weights += [draw.values(outputs, channels, *kernel), draw.values(outputs)]
            channels = outputs
    if draw.chance():
        chain.pop()  # ends with or without a layer that has windows
    shape = [max(n, least) for n, least in zip(draw.each(8, draw.largest), _least_field(chain, draw.dims), strict=True)]
    x, layout = draw.values(draw.between(1, 2), 2, *shape), draw.layout(shape)

    def with_weights(w: list[Tensor]) -> list[nn.Module]:
        given = iter(w)
        modules = [copy.copy(module) for module in chain]
        for module in modules:
            if isinstance(module, conv):
                module._parameters = {"weight": next(given), "bias": next(given)}
        return modules

    def serial(x: Tensor, w: list[Tensor]) -> Tensor:
        return nn.Sequential(*with_weights(w))(x)

    def tiled(x: DistTensor, w: list[Tensor]) -> DistTensor:
        return HaloRegion(with_weights(w), layout)(x)

    return Case(f"region {chain}", x, layout, serial, tiled, weights)


KINDS = [
    *[convolution] * 6,
    *[halo_region] * 3,
    *[transposed_convolution] * 2,
    *[max_pool] * 2,
    *[average_pool] * 2,
    norm_pool,
    adaptive_pool,
    *[interpolation] * 2,
    batch_norm,
    group_norm,
    layer_norm,
    contrast_norm,
    local_filter,
    local_defilter,
    linear,
    cross_entropy,
    repartition,
    through_whole,
    several,
]


def make(seed: int, ranks: int) -> Case:
    draw = Draw(seed, ranks)
    return draw.random.choice(KINDS)(draw)
