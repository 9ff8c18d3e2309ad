"""Creates run folders for tests."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from pathlib import Path

import torch


def metrics(name: str, values: Sequence[float], first: int = 0) -> list[dict[str, object]]:
    return [
        {
            "epoch": 0,
            "step": first + i,
            "name": name,
            "value": value if math.isfinite(value) else {math.inf: "Infinity"}.get(value, "NaN"),
            "time": 1700000000.0 + i,
        }
        for i, value in enumerate(values)
    ]


def write_metrics(run: Path, lines: Sequence[dict[str, object]]) -> None:
    run.mkdir(parents=True, exist_ok=True)
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def spans(rank: int, thread: int, name: str, times: Sequence[tuple[float, float]]) -> list[dict[str, object]]:
    return [{"ph": "X", "name": name, "pid": rank, "tid": thread, "ts": ts, "dur": dur} for ts, dur in times]


def safetensors(tensors: dict[str, torch.Tensor]) -> bytes:
    """Writes the safetensors format: 8 bytes of length, JSON, then the data."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        content = bytes(tensor.flatten().contiguous().view(torch.uint8).tolist()) if tensor.numel() else b""
        kind = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64"}[tensor.dtype]
        header[name] = {
            "dtype": kind,
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(content)],
        }
        data += content
    text = json.dumps({"__metadata__": {"made": "here"}, **header}).encode()
    return struct.pack("<Q", len(text)) + text + data


def write_checkpoint(run: Path, tensors: dict[str, torch.Tensor], ranks: int = 1, step: int = 10) -> Path:
    """Writes a checkpoint whose tensors are split along the first dimension into one piece per rank."""
    folder = run / "checkpoints" / f"step-{step:08d}"
    folder.mkdir(parents=True)
    shards: list[dict[str, torch.Tensor]] = [{} for _ in range(ranks)]
    index: dict[str, object] = {}
    for name, tensor in tensors.items():
        pieces, begin = [], 0
        parts = tensor.tensor_split(ranks) if tensor.dim() else (tensor,)
        for rank, part in enumerate(parts):
            shards[rank][name] = part
            offset = [begin, *[0] * (tensor.dim() - 1)] if tensor.dim() else []
            pieces.append({"file": f"rank-{rank}.safetensors", "offset": offset, "shape": list(part.shape)})
            begin += part.shape[0] if tensor.dim() else 0
        kind = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64"}[tensor.dtype]
        index[name] = {"dtype": kind, "shape": list(tensor.shape), "pieces": pieces}
    for rank, shard in enumerate(shards):
        (folder / f"rank-{rank}.safetensors").write_bytes(safetensors(shard))
    (folder / "index.json").write_text(json.dumps({"format": "weft-checkpoint", "version": 1, "tensors": index}))
    return folder


def write_whole_run(run: Path) -> None:
    """Writes a run with everything that a report shows."""
    losses = [2.3 * 0.9**i + 0.01 for i in range(60)]
    write_metrics(
        run,
        [*metrics("train/loss", losses), *metrics("test/loss", losses[::10]), *metrics("test/error", [0.3, 0.2, 0.15])],
    )
    (run / "config.yaml").write_text("model: !obj:neon.models.mlp.MLP { num_epochs: 2 }\n")
    (run / "run.json").write_text(json.dumps({"dtype": "float64", "ranks": "4", "data": "mnist in somewhere"}))
    (run / "split.json").write_text(json.dumps([{"layer": "conv1", "whole": "20 x 24 x 24", "rank 0": "12 x 12"}]))
    events = [*spans(0, 0, "train/forward", [(0, 100), (300, 120)]), *spans(1, 0, "train/forward", [(10, 100)])]
    events += spans(0, 1, "data/make batch", [(20, 30)])
    (run / "trace.json").write_text(json.dumps({"traceEvents": events}))
    pictures = run / "pictures"
    pictures.mkdir()
    image = {"channels": 1, "height": 2, "width": 3, "images": [{"label": "0", "pixels": [0, 0.5, 1, -1, 2, 0]}]}
    for kind in ("filters", "reconstructions", "stimuli"):
        (pictures / f"{kind}-1.json").write_text(json.dumps({"title": f"some {kind}", **image}))
    (pictures / "confusion.json").write_text(json.dumps({"classes": ["a", "b"], "counts": [[9, 1], [2, 8]]}))
