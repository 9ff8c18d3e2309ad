"""Loads and saves the checkpoints of a run as torch tensors, for any number of ranks.

``load(latest("runs/a"))`` returns a dictionary of whole tensors; ``save(state, folder, like=...)`` writes a checkpoint
that ``weft train --resume`` can continue from, on any number of ranks. Checkpoint files are not trusted: load()
validates sizes, offsets and shapes, and reads only files inside the checkpoint's folder.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from . import _bindings

__all__ = ["CheckpointError", "latest", "load", "read_safetensors", "save"]

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
NAMES = {dtype: name for name, dtype in TYPES.items()}
SHARD = "shard-0-of-1.safetensors"
PROGRESS = ["stage", "epoch", "batch", "step", "cost_sum", "mistakes", "images"]
FIXED = ["stages", "data"]  # must be the same when a run resumes; older checkpoints lack them
OWN_CHECKSUM, ZEROS = "index_checksum", "0" * 16
LARGEST_STEP = 2**63 - 1
DAMAGE = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError, SafetensorError)
OCCUPIED = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


class CheckpointError(ValueError):
    """A checkpoint that is missing or damaged."""


def latest(run: str | os.PathLike[str]) -> Path:
    """Returns the folder of the checkpoint with the largest step. Ignores folders without a step number."""
    place = Path(run) / "checkpoints"
    folders = [path.parent for path in place.glob("step-*/index.json")]
    whole = [(step, folder) for folder in folders if (step := step_of(folder.name)) is not None]
    if not whole:
        raise CheckpointError(f"weft: no checkpoint in '{place}'")
    return max(whole)[1]


def load(folder: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Returns all tensors of a checkpoint, assembled from the pieces of all ranks. Raises CheckpointError."""
    folder = Path(folder)
    shards: dict[str, dict[str, Tensor]] = {}
    with _reading(folder):
        tensors = _index(folder)["tensors"]
        return {name: _assembled(folder, name, tensor, shards) for name, tensor in tensors.items()}


def save(
    state: Mapping[str, Tensor], folder: str | os.PathLike[str], *, like: str | os.PathLike[str] | None = None
) -> Path:
    """Writes a checkpoint atomically to ``folder``, whose name is ``step-<number>``, and returns the folder.

    ``like`` is a checkpoint of the same experiment. Tensors missing from ``state`` are copied from it, tensors get its
    shapes (a linear layer after a field has weights ``[outputs, maps, rows, columns]``), and training continues at its
    step. Without ``like``, training starts at step 0 with these weights and a fresh optimizer state.

    Raises CheckpointError if the folder exists, its name is invalid, or ``state`` does not match ``like``.
    """
    folder = Path(folder)
    if step_of(folder.name) is None:
        raise CheckpointError(f"weft: expected a folder 'step-<number>', got '{folder.name}'")
    tensors, kept = dict(state), {"experiment": "", "numbers": dict.fromkeys(PROGRESS, 0)}
    if like is not None:
        kept = _kept(Path(like))
        tensors = _merged(tensors, load(like))
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        whole = {name: _described(tensor) for name, tensor in tensors.items()}
        _write_to_disk(partial / SHARD, safetensors.torch.save(_separate(tensors)))
        described = {"format": "weft-checkpoint", "version": 1, "ranks": 1, **kept, "tensors": whole}
        described[OWN_CHECKSUM] = ZEROS
        _write_to_disk(partial / "index.json", _with_own_checksum(json.dumps(described, indent=1)).encode())
        _publish(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # exists only after a failure
    return folder


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Returns all tensors of a safetensors file. Raises CheckpointError if the file is damaged."""
    try:
        return safetensors.torch.load(Path(path).read_bytes())
    except DAMAGE as error:
        raise CheckpointError(f"weft: cannot read safetensors file '{path}': {error}") from error


def step_of(name: str) -> int | None:
    """The number in ``step-<number>``, or None for other names, as in weft/experiment/run/checkpoint.cpp."""
    found = re.fullmatch("step-([0-9]+)", name)
    return int(found[1]) if found and int(found[1]) <= LARGEST_STEP else None


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Converts errors that a damaged checkpoint causes to CheckpointError."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise CheckpointError(f"weft: '{error.filename}' does not exist") from error
    except CheckpointError:
        raise
    except DAMAGE as error:
        raise CheckpointError(f"weft: the checkpoint in '{folder}' is damaged: {error!r}") from error


def _index(folder: Path) -> dict[str, Any]:
    text = (folder / "index.json").read_text(encoding="utf-8")
    index = json.loads(text)
    # Older checkpoints have no checksums.
    known = any(piece.get("checksum") for tensor in index["tensors"].values() for piece in tensor["pieces"])
    if text != _with_own_checksum(text) if OWN_CHECKSUM in index else known:
        raise ValueError("the checksum of index.json differs")
    return index


def _checksum(tensor: Tensor) -> str:
    """The checksum of the values, as in weft/files/checksum.h."""
    content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    return _bindings.load().checksum(content.numpy())


def _with_own_checksum(text: str) -> str:
    """Inserts the checksum of the index, computed with zeros in its place, as in C++ (checkpoint_index.cpp)."""
    before, key, rest = text.rpartition(f'"{OWN_CHECKSUM}": "')
    after = rest[len(ZEROS) :]
    found = _bindings.load().checksum((before + key + ZEROS + after).encode())
    return before + key + found + after


def _kept(like: Path) -> dict[str, Any]:
    """The fields of a checkpoint's index that a new checkpoint of the same run keeps."""
    with _reading(like):
        index = _index(like)
        experiment, numbers = index["experiment"], index["numbers"]
        if not isinstance(experiment, str) or not all(math.isfinite(number) for number in numbers.values()):
            raise ValueError("'experiment' must be text and 'numbers' must be finite")
        fixed = {name: index[name] for name in FIXED if name in index}
        return {"experiment": experiment, "numbers": numbers, **fixed}


def _assembled(folder: Path, name: str, described: dict[str, Any], shards: dict[str, dict[str, Tensor]]) -> Tensor:
    shape = _sizes(described["shape"])
    whole = torch.empty(shape, dtype=TYPES[described["dtype"]])
    taken = torch.zeros(shape, dtype=torch.bool)
    filled = 0
    for piece in described["pieces"]:
        file = piece["file"]
        if Path(file).name != file:
            raise ValueError(f"'{file}' is not a file in this folder")
        if file not in shards:
            shards[file] = read_safetensors(folder / file)
        stored = shards[file][name]
        part, there = _cut(whole, piece), _cut(taken, piece)
        if part.shape != stored.shape or stored.dtype != whole.dtype:
            raise ValueError(f"a piece of '{name}' in {file} differs in shape or type from the index")
        if piece.get("checksum", "") not in ("", _checksum(stored)):
            raise CheckpointError(f"weft: '{folder / file}' is damaged: the checksum of '{name}' differs")
        if there.any():
            raise ValueError(f"a piece of '{name}' in {file} overlaps an earlier piece")
        part.copy_(stored)
        there.fill_(True)
        filled += stored.numel()
    if filled != whole.numel():
        raise ValueError(f"the pieces of '{name}' cover {filled} of {whole.numel()} values")
    return whole


def _cut(whole: Tensor, piece: dict[str, Any]) -> Tensor:
    part = whole
    places = zip(_sizes(piece["offset"]), _sizes(piece["shape"]), range(whole.dim()), strict=True)
    for begin, size, dim in places:
        part = part.narrow(dim, begin, size)
    return part


def _merged(state: dict[str, Tensor], like: dict[str, Tensor]) -> dict[str, Tensor]:
    result = dict(like)
    for name, tensor in state.items():
        if name not in like:
            raise CheckpointError(f"weft: tensor '{name}' is not in the checkpoint, which has {', '.join(like)}")
        if tensor.numel() != like[name].numel():
            raise CheckpointError(
                f"weft: expected {like[name].numel()} values, of shape {list(like[name].shape)}, for '{name}', "
                f"got {list(tensor.shape)}"
            )
        result[name] = tensor.reshape(like[name].shape).to(like[name].dtype)
    return result


def _described(tensor: Tensor) -> dict[str, Any]:
    shape = list(tensor.shape)
    piece = {"file": SHARD, "offset": [0] * len(shape), "shape": shape, "checksum": _checksum(tensor)}
    return {"dtype": _name_of(tensor), "shape": shape, "pieces": [piece]}


def _name_of(tensor: Tensor) -> str:
    if tensor.dtype not in NAMES:
        raise CheckpointError(f"weft: unsupported type {tensor.dtype}; use one of {', '.join(map(str, NAMES))}")
    return NAMES[tensor.dtype]


def _separate(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns contiguous copies on the CPU, since safetensors rejects tensors that share memory."""
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }


def _write_to_disk(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _publish(partial: Path, folder: Path) -> None:
    """Renames the complete folder. After a crash, either all of it exists under its final name, or nothing."""
    _sync_folder(partial)
    try:
        partial.rename(folder)
    except OSError as error:
        if error.errno not in OCCUPIED:
            raise
        raise CheckpointError(f"weft: '{folder}' already exists") from error
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sizes(value: Any) -> list[int]:
    sizes = list(value)
    if any(type(size) is not int or size < 0 for size in sizes):
        raise ValueError(f"sizes must be integers of at least 0, got {sizes}")
    return sizes
