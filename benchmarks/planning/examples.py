"""The networks of docs/benchmarks.md#planning: ``weft plan benchmarks/planning/examples.py:dense --input 100x64``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

import weft

sys.path.insert(0, str(Path(__file__).parents[1] / "layer_parallel"))
import networks as layers


def dense() -> nn.Sequential:
    """For an input of 100x64."""
    torch.manual_seed(1)
    return nn.Sequential(*(layers.Dense() for _ in range(128)))


def convolutions() -> nn.Sequential:
    """For an input of 50x4x28x28."""
    torch.manual_seed(1)
    return nn.Sequential(*(layers.Convolutions() for _ in range(32)))


def gru() -> weft.GRU:
    """For an input of 1024x4x64."""
    torch.manual_seed(1)
    return weft.GRU(64, 128)
