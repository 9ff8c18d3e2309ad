"""A run's checkpoints as plain torch tensors, whatever number of ranks wrote them.

``load(latest("runs/a"))`` is a dictionary of whole tensors by name. Files are not trusted: sizes, offsets and shapes
have to fit each other, and nothing outside of the checkpoint's folder is read.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

__all__ = ["CheckpointError", "latest", "load", "read_safetensors"]

TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
LARGEST_HEADER = 100_000_000  # as in safetensors' own reader


class CheckpointError(ValueError):
    """A checkpoint that is absent or damaged."""


def latest(run: str | os.PathLike[str]) -> Path:
    """The folder of a run's last checkpoint."""
    place = Path(run) / "checkpoints"
    whole = sorted(path.parent for path in place.glob("step-*/index.json"))
    if not whole:
        raise CheckpointError(f"weft: expected a checkpoint in '{place}', got none")
    return whole[-1]


def load(folder: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Every tensor of a checkpoint, whole."""
    folder = Path(folder)
    shards: dict[str, dict[str, Tensor]] = {}
    result = {}
    try:
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        for name, tensor in index["tensors"].items():
            result[name] = _assembled(folder, name, tensor, shards)
    except FileNotFoundError as error:
        raise CheckpointError(f"weft: expected '{error.filename}', got no such file") from error
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, RecursionError) as error:
        raise CheckpointError(f"weft: expected a checkpoint in '{folder}', got a damaged one: {error!r}") from error
    return result


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """All tensors of one file; they share its memory."""
    content = bytearray(Path(path).read_bytes())
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(len(content) - 8, LARGEST_HEADER):
        raise CheckpointError(f"weft: expected '{path}' to be a safetensors file, got one that is cut short")
    try:
        header = json.loads(content[8 : 8 + length])
        data = torch.frombuffer(content, dtype=torch.uint8)[8 + length :]
        return {name: _tensor(data, info) for name, info in header.items() if name != "__metadata__"}
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, RecursionError) as error:
        raise CheckpointError(f"weft: expected '{path}' to be a safetensors file, got: {error!r}") from error


def _tensor(data: Tensor, info: dict[str, Any]) -> Tensor:
    dtype, shape = TYPES[info["dtype"]], _sizes(info["shape"])
    begin, end = _sizes(info["data_offsets"])
    if not begin <= end <= len(data) or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"offsets {begin} to {end} do not fit {info['dtype']} of {shape}")
    # An odd offset: torch views bytes as another type only where they are aligned.
    return data[begin:end].clone().view(dtype).reshape(shape)


def _assembled(folder: Path, name: str, described: dict[str, Any], shards: dict[str, dict[str, Tensor]]) -> Tensor:
    shape = _sizes(described["shape"])
    whole = torch.empty(shape, dtype=TYPES[described["dtype"]])
    filled = 0
    for piece in described["pieces"]:
        file = piece["file"]
        if Path(file).name != file:
            raise ValueError(f"'{file}' is no file of this folder")
        if file not in shards:
            shards[file] = read_safetensors(folder / file)
        stored = shards[file][name]
        part = whole
        for dim, (begin, size) in enumerate(zip(_sizes(piece["offset"]), _sizes(piece["shape"]), strict=True)):
            part = part.narrow(dim, begin, size)
        if part.shape != stored.shape or stored.dtype != whole.dtype:
            raise ValueError(f"a piece of '{name}' in {file} is of another shape or type than the index says")
        part.copy_(stored)
        filled += stored.numel()
    if filled != whole.numel():
        raise ValueError(f"the pieces of '{name}' have {filled} of {whole.numel()} values")
    return whole


def _sizes(value: Any) -> list[int]:
    sizes = [int(size) for size in value]
    if any(size < 0 for size in sizes):
        raise ValueError(f"expected sizes of at least 0, got {sizes}")
    return sizes
