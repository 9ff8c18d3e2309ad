"""Packs vectors into flat memory, as described by an app: ``getFeatureShapes``, ``getParameterShapes``, ``dtype``.

Only for programs and tests that call it: weft's solver packs its states in C++.
"""

from typing import Any

import torch

from .._vector import BraidVector

FINEST = 0


def _torch_type(dtype: Any) -> torch.dtype:
    """Converts Python's ``float`` to float64, as torch does."""
    return torch.empty(0, dtype=dtype).dtype


def sizeof_float(dtype: Any) -> int:
    return _torch_type(dtype).itemsize


def eps_float(dtype: Any) -> float:
    return torch.finfo(_torch_type(dtype)).eps


def cloneInitVector(app: Any) -> BraidVector:
    return app.buildInit(0.0).clone()


def cloneVector(app: Any, vector: BraidVector) -> BraidVector:
    return vector.clone()


def bufSize(app: Any) -> int:
    """The bytes of a vector on the finest level."""
    features, parameters = _shapes(app, FINEST)
    return sum(shape.numel() for shape in features + parameters) * sizeof_float(app.dtype)


class MemoryBlock:
    """Memory for one vector."""

    def __init__(self, app: Any, size: int) -> None:
        self.bytes = torch.zeros(size, dtype=torch.uint8, device=app.device)
        self.level = FINEST


def pack(app: Any, vector: BraidVector, block: MemoryBlock, level: int) -> None:
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in vector.allTensors()])
    data = flat.to(_torch_type(app.dtype)).to(block.bytes.device).view(torch.uint8)
    if data.numel() > block.bytes.numel():
        raise ValueError(
            f"torchbraid (weft): a vector of {data.numel()} bytes does not fit into {block.bytes.numel()} bytes"
        )
    block.bytes[: data.numel()].copy_(data)
    block.level = level


def unpack(app: Any, block: MemoryBlock) -> BraidVector:
    features, parameters = _shapes(app, block.level)
    shapes = features + parameters
    count = sum(shape.numel() for shape in shapes)
    flat = block.bytes[: count * sizeof_float(app.dtype)].clone().view(_torch_type(app.dtype))
    pieces = flat.split([shape.numel() for shape in shapes])
    tensors = [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
    vector = BraidVector(tensors[: len(features)])
    vector.addWeightTensors(tensors[len(features) :])
    return vector


def _shapes(app: Any, level: int) -> tuple[list[torch.Size], list[torch.Size]]:
    return list(app.getFeatureShapes(0, level)), list(app.getParameterShapes(0, level))
