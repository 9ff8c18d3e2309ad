"""torch.nn's layers for tensors in tiles: the same constructors, the same parameters, the same state_dict.

Each layer takes a DistTensor. A plain tensor, which every rank must hold whole, is passed to torch's layer. Layers that
torch.nn computes through functions of ``functional`` need no class here; parallelize keeps them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from . import functional as S
from .attention import reject_dropout
from .flat import FlatTiles, whole
from .tensor import DistTensor, Layout


class _Conv:
    def forward(self: Any, x: Any) -> Any:
        if not isinstance(x, DistTensor):
            return super().forward(x)  # type: ignore[misc]
        geometry = (self.stride, self.padding, self.dilation, self.groups, self.padding_mode)
        return S.conv(x, self.weight, self.bias, *geometry)


class Conv1d(_Conv, nn.Conv1d): ...


class Conv2d(_Conv, nn.Conv2d): ...


class Conv3d(_Conv, nn.Conv3d): ...


class L2Pool(nn.Module):
    """The square root of the sum of squares in each window; its gradient at 0 is 0."""

    def __init__(self, kernel_size: S.Size, stride: S.Size | None = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.ceil_mode = kernel_size, stride, ceil_mode

    def forward(self, x: DistTensor) -> DistTensor:
        return S.l2_pool(x, self.kernel_size, self.stride, self.ceil_mode)


class _Dropout:
    """Dropout with masks that do not depend on the split, also for tensors that all ranks hold whole.

    Masks derive from a seed, which rank 0 draws from torch's generator at the first call, and the number of the call.
    """

    whole_channels = False
    seed: int | None = None
    calls = 0
    comm: Any = None  # communicator that draws the seed for plain tensors; parallelize sets it

    def forward(self: Any, x: Any) -> Any:
        if not self.training or self.p == 0:
            return x
        local = x if isinstance(x, Tensor) else x.local
        if local.device.type == "meta":
            return x
        if self.seed is None:
            self.seed = torch.ops.weft.draw_dropout_seed(self.comm if isinstance(x, Tensor) else x.layout.grid.id)
        self.calls += 1
        seed = torch.ops.weft.dropout_mask_seed(self.seed, self.calls)
        if isinstance(x, DistTensor):
            return S.dropout(x, self.p, seed, self.whole_channels)
        if not isinstance(x, Tensor):
            return FlatTiles(S.dropout(x.tiles, self.p, seed, self.whole_channels))
        return torch.ops.weft.seeded_dropout(x, float(self.p), seed)


class Dropout(_Dropout, nn.Dropout): ...


class Dropout1d(_Dropout, nn.Dropout1d):
    whole_channels = True


class Dropout2d(_Dropout, nn.Dropout2d):
    whole_channels = True


class Dropout3d(_Dropout, nn.Dropout3d):
    whole_channels = True


class StochasticDepth(nn.Module):
    """torchvision's StochasticDepth: drops whole examples, or the batch, with probability ``p``; the same on all ranks.

    Rank 0 draws the noise from torch's generator.
    """

    p: float
    mode: str
    comm: Any = None  # communicator that shares the noise; parallelize sets it

    def forward(self, x: Any) -> Any:
        local = x if isinstance(x, Tensor) else x.local
        if not self.training or self.p == 0 or local.device.type == "meta":
            return x
        batch = [x.shape[0]] if self.mode == "row" else [1]
        noise = torch.empty([*batch, *[1] * (local.dim() - 1)], dtype=local.dtype, device=local.device)
        noise.bernoulli_(1 - self.p)
        if self.p < 1:
            noise.div_(1 - self.p)
        return x * torch.ops.weft.broadcast(noise, 0, self.comm)


class MultiheadAttention(nn.MultiheadAttention):
    """Gathers sequences in tiles; every rank computes the attention of the whole sequence."""

    def forward(self, *inputs: Any, **options: Any) -> Any:
        if self.training:
            reject_dropout(self.dropout)
        return super().forward(*map(whole, inputs), **{name: whole(value) for name, value in options.items()})


class ContrastNorm(nn.Module):
    """Local contrast normalization over odd windows and all channels."""

    def __init__(self, kernel_size: S.Size) -> None:
        super().__init__()
        self.kernel_size = kernel_size

    def forward(self, x: DistTensor) -> DistTensor:
        return S.contrast_norm(x, self.kernel_size)


class _Filter(nn.Module):
    """A layer with weights [channels out, outputs..., channels in, kernel...]; each rank holds those of its tile.

    Every rank draws all weights from torch's generator and keeps its part. If all ranks have the same seed, a split run
    starts like an unsplit one.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: S.Size,
        inputs: Layout,
        stride: S.Size = 1,
        padding: S.Size = 0,
    ) -> None:
        super().__init__()
        self.inputs, self.stride, self.padding = inputs, stride, padding
        kernel = S.as_list(kernel_size) * (inputs.dims if len(S.as_list(kernel_size)) == 1 else 1)
        handle = torch.ops.weft.local_filter_outputs(inputs.handle, kernel, S.as_list(stride), S.as_list(padding))
        self.outputs = Layout.wrap(handle, inputs.grid)
        whole = torch.empty(out_channels, *self.outputs.shape, in_channels, *kernel).uniform_(-1, 1)
        self.weight = nn.Parameter(whole[(slice(None), *self.outputs.tile())].contiguous())
        self.normalize()

    @torch.no_grad()
    def normalize(self) -> None:
        """Scales every filter to length 1."""
        flat = self.weight.flatten(1 + self.inputs.dims)
        self.weight.div_(flat.norm(dim=-1).clamp_min(1e-30)[(..., *[None] * (1 + self.inputs.dims))])


class LocalFilter(_Filter):
    """A separate filter for every output."""

    def forward(self, x: DistTensor) -> DistTensor:
        return S.local_filter(x, self.weight, self.stride, self.padding)


class LocalDefilter(_Filter):
    """Maps a LocalFilter's outputs back to its inputs; ``tie`` shares the filter's weights."""

    def tie(self, encoder: LocalFilter) -> LocalDefilter:
        self.weight = encoder.weight
        return self

    def forward(self, y: DistTensor) -> DistTensor:
        return S.local_defilter(y, self.weight, self.inputs, self.stride, self.padding)


class TileLinear(nn.Module):
    """Linear(flatten(x)) with weights split like the field: each rank holds the columns of its tile.

    ``state_dict`` has the rank's part. ``load_state_dict`` also accepts the weight of the unsplit layer, and
    ``whole_weight`` (collective) returns it.
    """

    def __init__(
        self, channels: int, layout: Layout, out_features: int, bias: bool = True, unsplit: nn.Linear | None = None
    ) -> None:
        """Takes the weights of ``unsplit``, or draws them like torch."""
        super().__init__()
        self.layout, self.channels, self.out_features = layout, channels, out_features
        if unsplit is None:
            unsplit = nn.Linear(channels * math.prod(layout.shape), out_features, bias)
        self.bias = unsplit.bias
        self.weight = nn.Parameter(self.cut(unsplit.weight.detach()), unsplit.weight.requires_grad)

    def cut(self, whole: Tensor) -> Tensor:
        field = whole.view(self.out_features, self.channels, *self.layout.shape)
        return field[(slice(None), slice(None), *self.layout.tile())].clone()

    def whole_weight(self) -> Tensor:
        tiles = DistTensor(self.weight.detach(), self.layout)
        return tiles.all_gather().flatten(1)

    def forward(self, x: Any) -> Tensor:
        tiles = x if isinstance(x, DistTensor) else x.tiles
        return S.linear(tiles, self.weight, self.bias)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        weight = state_dict.get(prefix + "weight")
        if weight is not None and weight.dim() == 2:
            state_dict[prefix + "weight"] = self.cut(weight)
        super()._load_from_state_dict(state_dict, prefix, *args)
