"""Layers as functions on tensors in tiles. All are collective; weights must be the same on all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .tensor import HANDLERS, DistTensor, Layout, call

_ops = torch.ops.weft

Size = int | Sequence[int]


def as_list(value: Size | None) -> list[int]:
    """Returns one or several numbers as a list; an empty list for None."""
    if value is None:
        return []
    return [value] if isinstance(value, int) else list(value)


def _tiled(x: DistTensor, op: Any, *arguments: Any) -> DistTensor:
    local, handle = call(op, x.local, x.layout.handle, *arguments)
    return DistTensor(local, Layout.wrap(handle, x.layout.grid))


def _same(x: DistTensor, op: Any, *arguments: Any) -> DistTensor:
    return x.with_local(call(op, x.local, x.layout.handle, *arguments))


def paddings(
    padding: Size | str, kernel: Sequence[int], dilation: Size, stride: Size, dims: int
) -> tuple[list[int], list[int]]:
    """Returns the padding before and after, by dimension, for torch's numbers, 'valid' and 'same'."""
    if not isinstance(padding, str):
        return as_list(padding), []
    if padding == "valid":
        return [0], []
    if padding != "same":
        raise ValueError(f"weft: expected padding 'valid', 'same' or numbers, got {padding!r}")
    if any(s != 1 for s in as_list(stride)):
        raise ValueError("weft: padding='same' requires stride=1")
    spread = as_list(dilation) * (dims if isinstance(dilation, int) or len(as_list(dilation)) == 1 else 1)
    total = [d * (k - 1) for d, k in zip(spread, kernel, strict=True)]
    return [t // 2 for t in total], [t - t // 2 for t in total]


def conv(
    x: DistTensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
    padding_mode: str = "zeros",
    edges: str = "auto",
) -> DistTensor:
    """Implements conv1d, conv2d and conv3d.

    ``edges``: "apart" convolves the tile in place while the halo is in flight and then adds the halo's share; "padded"
    copies the tile and its halo into one buffer; "auto" selects the cheaper one.
    """
    before, behind = paddings(padding, weight.shape[2:], dilation, stride, x.layout.dims)
    return _tiled(
        x,
        _ops.tile_conv,
        weight,
        bias,
        as_list(stride),
        before,
        behind,
        as_list(dilation),
        groups,
        padding_mode,
        edges,
    )


def conv_transpose(
    x: DistTensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> DistTensor:
    """Implements conv_transpose1d, 2d and 3d."""
    numbers = [as_list(value) for value in (stride, padding, output_padding, dilation)]
    return _tiled(x, _ops.tile_conv_transpose, weight, bias, *numbers, groups)


def max_pool(
    x: DistTensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> DistTensor:
    if return_indices:
        raise NotImplementedError("weft: max_pool does not support return_indices=True on tiles")
    numbers = [as_list(value) for value in (kernel_size, stride, padding, dilation)]
    return _tiled(x, _ops.tile_max_pool, *numbers, ceil_mode)


def avg_pool(
    x: DistTensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> DistTensor:
    numbers = [as_list(value) for value in (kernel_size, stride, padding)]
    return _tiled(x, _ops.tile_avg_pool, *numbers, ceil_mode, count_include_pad, divisor_override)


def lp_pool(
    x: DistTensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
) -> DistTensor:
    """Returns the p-th root of the sum of p-th powers; its gradient at 0 is 0."""
    return _tiled(x, _ops.tile_lp_pool, float(norm_type), as_list(kernel_size), as_list(stride), ceil_mode)


def l2_pool(x: DistTensor, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False) -> DistTensor:
    return lp_pool(x, 2.0, kernel_size, stride, ceil_mode)


def _adaptive_sizes(x: DistTensor, output_size: Any) -> list[int]:
    given = [output_size] * x.layout.dims if output_size is None or isinstance(output_size, int) else output_size
    return [n if wanted is None else wanted for wanted, n in zip(given, x.layout.shape, strict=True)]


def adaptive_avg_pool(x: DistTensor, output_size: Any) -> DistTensor | Tensor:
    """Pools to ``output_size`` cells. If all sizes are 1, every rank gets the whole result; it counts once."""
    sizes = _adaptive_sizes(x, output_size)
    if all(n == 1 for n in sizes):
        return call(_ops.tile_global_avg_pool, x.local, x.layout.handle)
    return _tiled(x, _ops.tile_adaptive_avg_pool, sizes)


def adaptive_max_pool(x: DistTensor, output_size: Any, return_indices: bool = False) -> DistTensor | Tensor:
    if return_indices:
        raise NotImplementedError("weft: adaptive_max_pool does not support return_indices=True on tiles")
    sizes = _adaptive_sizes(x, output_size)
    if all(n == 1 for n in sizes):
        return call(_ops.tile_global_max_pool, x.local, x.layout.handle)
    return _tiled(x, _ops.tile_adaptive_max_pool, sizes)


def interpolate(
    x: DistTensor,
    size: Size | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> DistTensor:
    if antialias:
        raise NotImplementedError("weft: interpolate does not support antialias=True on tiles")
    dims = x.layout.dims
    if (size is None) == (scale_factor is None):
        raise ValueError("weft: interpolate: pass either size or scale_factor")
    if scale_factor is None:
        return _tiled(x, _ops.tile_interpolate, as_list(size), mode, bool(align_corners), None)
    scales = [float(scale_factor)] * dims if isinstance(scale_factor, int | float) else [float(s) for s in scale_factor]
    sizes = [int(n * s) for n, s in zip(x.layout.shape, scales, strict=True)]
    kept = None if recompute_scale_factor else scales
    return _tiled(x, _ops.tile_interpolate, sizes, mode, bool(align_corners), kept)


def batch_norm(
    x: DistTensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> DistTensor:
    """Normalizes with the statistics of all tiles."""
    return _same(x, _ops.tile_batch_norm, weight, bias, running_mean, running_var, training, momentum, eps)


def group_norm(
    x: DistTensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> DistTensor:
    return _same(x, _ops.tile_group_norm, num_groups, weight, bias, eps)


def layer_norm(
    x: DistTensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> DistTensor:
    return _same(x, _ops.tile_layer_norm, list(normalized_shape), weight, bias, eps)


def dropout(x: DistTensor, p: float, seed: int, whole_channels: bool = False) -> DistTensor:
    """Drops cells. The mask depends on the seed (equal on all ranks) and on a cell's position in the whole field."""
    return _same(x, _ops.tile_dropout, float(p), seed, whole_channels)


def contrast_norm(x: DistTensor, kernel_size: Size) -> DistTensor:
    """Normalizes the local contrast over odd windows and all channels."""
    return _same(x, _ops.tile_contrast_norm, as_list(kernel_size))


def local_filter(x: DistTensor, weight: Tensor, stride: Size = 1, padding: Size = 0) -> DistTensor:
    """Filters with weights for every position: [channels out, tile of outputs..., channels in, kernel...]."""
    return _tiled(x, _ops.tile_local_filter, weight, as_list(stride), as_list(padding))


def local_defilter(y: DistTensor, weight: Tensor, inputs: Layout, stride: Size = 1, padding: Size = 0) -> DistTensor:
    """Applies the transpose of local_filter, back to the field ``inputs``."""
    arguments = (y.local, y.layout.handle, weight, inputs.handle, as_list(stride), as_list(padding))
    return DistTensor(call(_ops.tile_local_defilter, *arguments), inputs)


def linear(x: DistTensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns Linear(flatten(x)) on every rank. ``weight`` has this rank's columns, [outputs, channels, tile...]."""
    return call(_ops.tile_linear, x.local, x.layout.handle, weight, bias)


def cross_entropy(
    x: DistTensor,
    target: DistTensor | Tensor,
    weight: Tensor | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Returns the loss of dense classification on every rank; it counts once. ``target`` holds class numbers."""
    if reduction not in ("mean", "sum"):
        raise NotImplementedError(
            f"weft: cross_entropy of tiles supports the reductions mean and sum, not {reduction!r}"
        )
    local = target.repartition(x.layout).local if isinstance(target, DistTensor) else target
    if not isinstance(target, DistTensor) and tuple(target.shape[1:]) == x.layout.shape:
        local = DistTensor.tile_of(target, x.layout).local
    arguments = (local, weight, reduction == "mean", ignore_index, float(label_smoothing))
    return call(_ops.tile_cross_entropy, x.local, x.layout.handle, *arguments)


def mse_loss(x: DistTensor, target: DistTensor | Tensor, *_: Any, reduction: str = "mean") -> Tensor:
    squares: DistTensor = HANDLERS[torch.square](HANDLERS[torch.sub](x, target))
    return squares.sum_all() if reduction == "sum" else squares.mean_all()


def mean(x: DistTensor, dim: Any = None, keepdim: bool = False) -> Tensor | DistTensor:
    """Returns the mean over everything, over all tiled dimensions, or over dimensions that are not cut."""
    if dim is None:
        return x.mean_all()
    wanted = sorted(d % x.ndim for d in ([dim] if isinstance(dim, int) else dim))
    tiled = [d for d in wanted if x.tiled(d)]
    if not tiled:
        if not keepdim and any(d < x.leading for d in wanted):
            return x.with_local(x.local.mean(wanted))
        return x.with_local(x.local.mean(wanted, keepdim))
    if len(tiled) != x.layout.dims or len(tiled) != len(wanted):
        raise NotImplementedError(f"weft: mean of {x!r}: dim must name all tiled dimensions or none, got {dim}")
    pooled = call(_ops.tile_global_avg_pool, x.local, x.layout.handle)
    return pooled if keepdim else pooled.flatten(x.leading - 1 if x.leading else 0)


def _by_dims(name: str, function: Any) -> None:
    for dims in (1, 2, 3):
        HANDLERS[getattr(F, f"{name}{dims}d")] = function


for _name, _function in {
    "conv": conv,
    "conv_transpose": conv_transpose,
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "lp_pool": lp_pool,
    "adaptive_avg_pool": adaptive_avg_pool,
    "adaptive_max_pool": adaptive_max_pool,
}.items():
    _by_dims(_name, _function)
for _name in ("conv1d", "conv2d", "conv3d"):
    HANDLERS[getattr(torch, _name)] = conv
HANDLERS[F.interpolate] = interpolate
HANDLERS[F.batch_norm] = batch_norm
HANDLERS[F.group_norm] = group_norm
HANDLERS[F.layer_norm] = layer_norm
HANDLERS[F.cross_entropy] = cross_entropy
HANDLERS[F.mse_loss] = mse_loss
for _function in (torch.mean, Tensor.mean):
    HANDLERS[_function] = mean
