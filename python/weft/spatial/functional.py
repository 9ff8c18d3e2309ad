"""Layers as functions on tensors in tiles. All are collective; weights must be the same on all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .tensor import HANDLERS, DistTensor, Layout, move_back

_ops = torch.ops.weft

Size = int | Sequence[int]


def as_list(value: Size | None) -> list[int]:
    """Returns one or several numbers as a list; an empty list for None."""
    if value is None:
        return []
    return [value] if isinstance(value, int) else list(value)


def _local(x: DistTensor) -> Tensor:
    """Returns the tile for an operation that expects the tiled dimensions at the end."""
    if not x.has_tiles_last:
        raise NotImplementedError(
            f"weft: this layer needs the tiled dimensions at the end, but those of a tensor of {tuple(x.shape)} are "
            f"{x.axes}; permute it back first"
        )
    return x.local


def _tiled(x: DistTensor, op: Any, *arguments: Any) -> DistTensor:
    local, handle = op(_local(x), x.layout.handle, *arguments)
    return DistTensor(local, Layout.wrap(handle, x.layout.grid))


def _shared(x: DistTensor, *weights: Tensor | None) -> list[Tensor | None]:
    """Returns weights that every tile uses; backward adds the gradients of all tiles."""
    present = [weight for weight in weights if weight is not None]
    shared = iter(_ops.share(present, x.layout.grid.id) if present else [])
    return [None if weight is None else next(shared) for weight in weights]


def cell_linear(x: DistTensor, weight: Tensor, bias: Tensor | None = None) -> DistTensor:
    """Implements F.linear: applies [outputs, inputs] to each cell. The last dimension must not be tiled."""
    if x.tiled(-1):
        raise NotImplementedError(
            "weft: the input of a linear layer is tiled along its last dimension; flatten it first"
        )
    shared: Any = _shared(x, weight, bias)
    return x.with_local(F.linear(x.local, *shared))


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
    geometry = (as_list(stride), before, behind, as_list(dilation), groups)
    return _tiled(x, _ops.tile_conv, weight, bias, *geometry, padding_mode, edges)


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
        return _ops.tile_global_avg_pool(_local(x), x.layout.handle)
    return _tiled(x, _ops.tile_adaptive_avg_pool, sizes)


def adaptive_max_pool(x: DistTensor, output_size: Any, return_indices: bool = False) -> DistTensor | Tensor:
    if return_indices:
        raise NotImplementedError("weft: adaptive_max_pool does not support return_indices=True on tiles")
    sizes = _adaptive_sizes(x, output_size)
    if all(n == 1 for n in sizes):
        return _ops.tile_global_max_pool(_local(x), x.layout.handle)
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
    return _tiled(x, _ops.tile_batch_norm, weight, bias, running_mean, running_var, training, momentum, eps)


def group_norm(
    x: DistTensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> DistTensor:
    return _tiled(x, _ops.tile_group_norm, num_groups, weight, bias, eps)


def instance_norm(
    x: DistTensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> DistTensor:
    if running_mean is not None or running_var is not None:
        raise NotImplementedError("weft: instance normalization does not support track_running_stats=True on tiles")
    return group_norm(x, x.shape[1], weight, bias, eps)


def layer_norm(
    x: DistTensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> DistTensor:
    if any(x.tiled(-1 - i) for i in range(len(normalized_shape))):
        return _tiled(x, _ops.tile_layer_norm, list(normalized_shape), weight, bias, eps)
    shared_weight, shared_bias = _shared(x, weight, bias)
    return x.with_local(F.layer_norm(x.local, list(normalized_shape), shared_weight, shared_bias, eps))


def dropout(x: DistTensor, p: float, seed: int, whole_channels: bool = False) -> DistTensor:
    """Drops cells by the seed, which must be the same on all ranks, and by their position in the whole field."""
    dropped = _tiled(x.tiles_last(), _ops.tile_dropout, float(p), seed, whole_channels)
    return dropped.with_axes(x.axes)


def contrast_norm(x: DistTensor, kernel_size: Size) -> DistTensor:
    """Normalizes the local contrast over odd windows and all channels."""
    return _tiled(x, _ops.tile_contrast_norm, as_list(kernel_size))


def local_filter(x: DistTensor, weight: Tensor, stride: Size = 1, padding: Size = 0) -> DistTensor:
    """Filters with weights for every position: [channels out, tile of outputs..., channels in, kernel...]."""
    return _tiled(x, _ops.tile_local_filter, weight, as_list(stride), as_list(padding))


def local_defilter(y: DistTensor, weight: Tensor, inputs: Layout, stride: Size = 1, padding: Size = 0) -> DistTensor:
    """Applies the transpose of local_filter, back to the field ``inputs``."""
    return _tiled(y, _ops.tile_local_defilter, weight, inputs.handle, as_list(stride), as_list(padding))


def linear(x: DistTensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns Linear(flatten(x)) on every rank. ``weight`` has this rank's columns, [outputs, channels, tile...]."""
    return _ops.tile_linear(_local(x), x.layout.handle, weight, bias)


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
    return _ops.tile_cross_entropy(_local(x), x.layout.handle, *arguments)


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
        removed = [] if keepdim else wanted
        axes = [axis - sum(d < axis for d in removed) for axis in x.axes]
        return DistTensor(x.local.mean(wanted, keepdim), x.layout, axes)
    if len(tiled) != x.layout.dims or len(tiled) != len(wanted):
        raise NotImplementedError(f"weft: mean of {x!r}: dim must name all tiled dimensions or none, got {dim}")
    pooled = move_back(_ops.tile_global_avg_pool(x.tiles_last().local, x.layout.handle), x.axes)
    return pooled if keepdim else pooled.squeeze(tuple(wanted))


_function: Any
for _function in (conv, conv_transpose, max_pool, avg_pool, lp_pool, adaptive_avg_pool, adaptive_max_pool):
    for _dims in (1, 2, 3):
        HANDLERS[getattr(F, f"{_function.__name__}{_dims}d")] = _function
for _function in (interpolate, batch_norm, group_norm, instance_norm, layer_norm, cross_entropy, mse_loss):
    HANDLERS[getattr(F, _function.__name__)] = _function
HANDLERS[F.linear] = cell_linear
HANDLERS.update(dict.fromkeys((torch.mean, Tensor.mean), mean))
