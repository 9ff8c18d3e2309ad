"""Spatial parallelism: images and fields cut into tiles over a grid of ranks, and networks that compute on them."""

from __future__ import annotations

from . import elementwise, functional
from .flat import FlatTiles
from .layers import *  # noqa: F403
from .layers import __all__ as _layers
from .parallel import SplitNetwork, parallelize
from .tensor import DistTensor, Grid, Layout

__all__ = [
    "DistTensor",
    "FlatTiles",
    "Grid",
    "Layout",
    "SplitNetwork",
    "elementwise",
    "functional",
    "parallelize",
    *_layers,
]
