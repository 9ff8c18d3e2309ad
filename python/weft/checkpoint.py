"""A run's checkpoints as plain torch tensors, whatever number of ranks wrote them, and back.

``load(latest("runs/a"))`` is a dictionary of whole tensors by name; ``save(state, folder, like=...)`` writes one that
``weft train --resume`` goes on from, on any number of ranks. Files are not trusted: sizes, offsets and shapes
have to fit each other, and nothing outside of the checkpoint's folder is read.
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

import torch
from torch import Tensor

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
BEGUN_WITH = ["stages", "data"]  # what a run must have as it was begun to go on; absent in older checkpoints
LARGEST_HEADER = 100_000_000  # as in safetensors' own reader
LARGEST_STEP = 2**63 - 1
DAMAGE = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError)
OCCUPIED = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


class CheckpointError(ValueError):
    """A checkpoint that is absent or damaged."""


def latest(run: str | os.PathLike[str]) -> Path:
    """The folder of a run's last checkpoint: that of the largest step. Folders without a number are left out."""
    place = Path(run) / "checkpoints"
    folders = [path.parent for path in place.glob("step-*/index.json")]
    whole = [(step, folder) for folder in folders if (step := step_of(folder.name)) is not None]
    if not whole:
        raise CheckpointError(f"weft: expected a checkpoint in '{place}', got none")
    return max(whole)[1]


def load(folder: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Every tensor of a checkpoint, whole."""
    folder = Path(folder)
    shards: dict[str, dict[str, Tensor]] = {}
    with _reading(folder):
        tensors = _index(folder)["tensors"]
        return {name: _assembled(folder, name, tensor, shards) for name, tensor in tensors.items()}


def save(
    state: Mapping[str, Tensor], folder: str | os.PathLike[str], *, like: str | os.PathLike[str] | None = None
) -> Path:
    """Writes a checkpoint, whole or not at all: ``runs/b/checkpoints/step-00000120``, or any name ``step-<number>``.

    One that is there already stays, and CheckpointError is raised.

    ``like`` is a checkpoint of the same experiment. What ``state`` lacks is taken from it, tensors get its shapes (a
    linear layer behind a field has weights ``[outputs, maps, rows, columns]``), and training goes on where it was.
    Without it the run begins anew with these weights, and the optimiser without memory.
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
        _write_safetensors(partial / SHARD, tensors)
        whole = {name: _described(tensor) for name, tensor in tensors.items()}
        described = {"format": "weft-checkpoint", "version": 1, "ranks": 1, **kept, "tensors": whole}
        _write_to_disk(partial / "index.json", json.dumps(described, indent=1).encode())
        _publish(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # renamed by now, or not whole
    return folder


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
    except DAMAGE as error:
        raise CheckpointError(f"weft: expected '{path}' to be a safetensors file, got: {error!r}") from error


def step_of(name: str) -> int | None:
    """The number in ``step-<number>``; None for other names, as in weft/experiment/checkpoint.cpp."""
    found = re.fullmatch("step-([0-9]+)", name)
    return int(found[1]) if found and int(found[1]) <= LARGEST_STEP else None


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Whatever a damaged checkpoint leads to becomes a CheckpointError."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise CheckpointError(f"weft: expected '{error.filename}', got no such file") from error
    except CheckpointError:
        raise
    except DAMAGE as error:
        raise CheckpointError(f"weft: expected a checkpoint in '{folder}', got a damaged one: {error!r}") from error


def _index(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "index.json").read_text(encoding="utf-8"))


def _kept(like: Path) -> dict[str, Any]:
    """Of which experiment a checkpoint is, and where training was."""
    with _reading(like):
        index = _index(like)
        experiment, numbers = index["experiment"], index["numbers"]
        if not isinstance(experiment, str) or not all(math.isfinite(number) for number in numbers.values()):
            raise ValueError("expected an experiment's text and the numbers of its progress")
        begun_with = {name: index[name] for name in BEGUN_WITH if name in index}
        return {"experiment": experiment, "numbers": numbers, **begun_with}


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
    taken = torch.zeros(shape, dtype=torch.bool)
    filled = 0
    for piece in described["pieces"]:
        file = piece["file"]
        if Path(file).name != file:
            raise ValueError(f"'{file}' is no file of this folder")
        if file not in shards:
            shards[file] = read_safetensors(folder / file)
        stored = shards[file][name]
        part, there = _cut(whole, piece), _cut(taken, piece)
        if part.shape != stored.shape or stored.dtype != whole.dtype:
            raise ValueError(f"a piece of '{name}' in {file} is of another shape or type than the index says")
        if there.any():
            raise ValueError(f"pieces of '{name}' intersect, that in {file} with one before")
        part.copy_(stored)
        there.fill_(True)
        filled += stored.numel()
    if filled != whole.numel():
        raise ValueError(f"the pieces of '{name}' have {filled} of {whole.numel()} values")
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
            raise CheckpointError(f"weft: expected tensors of the checkpoint, {', '.join(like)}, got '{name}'")
        if tensor.numel() != like[name].numel():
            raise CheckpointError(
                f"weft: expected '{name}' with the values of {list(like[name].shape)}, got {list(tensor.shape)}"
            )
        result[name] = tensor.reshape(like[name].shape).to(like[name].dtype)
    return result


def _described(tensor: Tensor) -> dict[str, Any]:
    shape = list(tensor.shape)
    piece = {"file": SHARD, "offset": [0] * len(shape), "shape": shape}
    return {"dtype": _name_of(tensor), "shape": shape, "pieces": [piece]}


def _name_of(tensor: Tensor) -> str:
    if tensor.dtype not in NAMES:
        raise CheckpointError(f"weft: expected tensors of {', '.join(map(str, NAMES))}, got {tensor.dtype}")
    return NAMES[tensor.dtype]


def _write_safetensors(path: Path, tensors: dict[str, Tensor]) -> None:
    header: dict[str, Any] = {}
    content = []
    end = 0
    for name, tensor in tensors.items():
        data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {
            "dtype": _name_of(tensor),
            "shape": list(tensor.shape),
            "data_offsets": [end, end + len(data)],
        }
        end += len(data)
        content.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the data is aligned
    _write_to_disk(path, len(text).to_bytes(8, "little") + text + b"".join(content))


def _write_to_disk(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _publish(partial: Path, folder: Path) -> None:
    """After a crash there is all of the folder, or nothing under its name."""
    _sync_folder(partial)
    try:
        partial.rename(folder)
    except OSError as error:
        if error.errno not in OCCUPIED:
            raise
        raise CheckpointError(f"weft: expected a folder that is not there yet, got '{folder}'") from error
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
        raise ValueError(f"expected whole sizes of at least 0, got {sizes}")
    return sizes
