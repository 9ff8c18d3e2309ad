"""Spatial parallelism: images and fields cut into tiles over a grid of ranks, and networks that compute on them."""

from __future__ import annotations

from typing import Any

# These layers of torch call functions that support tensors in tiles.
from torch.nn import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    CrossEntropyLoss,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    LPPool1d,
    LPPool2d,
    LPPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MSELoss,
    Upsample,
)

from .. import _renamed
from . import attention, elementwise, functional, shapes
from .flat import FlatTiles
from .layers import (
    ContrastNorm,
    Conv1d,
    Conv2d,
    Conv3d,
    Dropout,
    Dropout1d,
    Dropout2d,
    Dropout3d,
    L2Pool,
    LocalDefilter,
    LocalFilter,
    MultiheadAttention,
    TileLinear,
)
from .parallel import SplitNetwork, parallelize
from .tensor import DistTensor, Layout, RankGrid

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "ContrastNorm",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "CrossEntropyLoss",
    "DistTensor",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "FlatTiles",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "L2Pool",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "LayerNorm",
    "Layout",
    "LocalDefilter",
    "LocalFilter",
    "MSELoss",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MultiheadAttention",
    "RankGrid",
    "SplitNetwork",
    "TileLinear",
    "Upsample",
    "attention",
    "elementwise",
    "functional",
    "parallelize",
    "shapes",
]

_RENAMED = {"Grid": ("weft.spatial", "RankGrid")}


def __getattr__(name: str) -> Any:
    return _renamed.resolve("weft.spatial", name, _RENAMED)
