"""Layer-parallel training: deep networks whose layers are distributed over ranks."""

from .attention import Attention
from .buffered import BufferedNetwork
from .controller import ControlRecord, IterationController
from .dropout import Dropout
from .micro_batches import PerSample
from .network import LayerParallel, zero_joined_to
from .serial import SerialNetwork
from .solve import Solve, SolveStatistics
from .transformer import DecoderBlock, EncoderBlock

__all__ = [
    "Attention",
    "BufferedNetwork",
    "ControlRecord",
    "DecoderBlock",
    "Dropout",
    "EncoderBlock",
    "IterationController",
    "LayerParallel",
    "PerSample",
    "SerialNetwork",
    "Solve",
    "SolveStatistics",
    "zero_joined_to",
]
