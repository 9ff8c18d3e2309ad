"""Writes a run's metrics as TensorBoard event files: ``python -m weft.tensorboard runs/a [runs/b ...]``.

For runs that have none: ``weft train`` writes events itself, and they would be shown twice. Then
``tensorboard --logdir runs`` shows them. Neither TensorFlow nor protobuf is needed: the few fields that a scalar has
are encoded here, as weft/trace/tensorboard.cpp does while a run goes on.
"""

from __future__ import annotations

import argparse
import re
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from weft._run import Run, RunError, Scalar

__all__ = ["convert", "encode"]

_CASTAGNOLI = 0x82F63B78
_VERSION = "brain.Event:2"


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CASTAGNOLI if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _crc_table()


def _masked_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked_crc(length)) + data + struct.pack("<I", _masked_crc(data))


def _varint(number: int) -> bytes:
    number &= 2**64 - 1
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _event(time: float, step: int, content: bytes) -> bytes:
    return b"\x09" + struct.pack("<d", time) + b"\x10" + _varint(step) + content


def _single(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:  # beyond a float's range: infinite there
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def _text(name: str) -> bytes:
    """Halves of characters, which JSON can name and UTF-8 cannot, replaced as in reports."""
    return re.sub("[\ud800-\udfff]", "\ufffd", name).encode()


def encode(scalars: Iterable[Scalar]) -> bytes:
    """An event file's bytes."""
    scalars = list(scalars)
    records = [_record(_event(scalars[0].time if scalars else 0.0, 0, _message(3, _VERSION.encode())))]
    for scalar in scalars:
        value = _message(1, _text(scalar.name)) + b"\x15" + _single(scalar.value)
        records.append(_record(_event(scalar.time, scalar.step, _message(5, _message(1, value)))))
    return b"".join(records)


def convert(run: Path) -> Path:
    """Writes the event file of a run beside its metrics, in place of the one written before."""
    scalars = Run(run).scalars
    if not scalars:
        raise RunError(f"weft: expected metrics in '{run / 'metrics.jsonl'}', got none")
    target = run / f"events.out.tfevents.{int(scalars[0].time)}.weft"
    partial = target.with_name(target.name + ".partial")
    partial.write_bytes(encode(scalars))
    partial.replace(target)
    return target


def written_by_the_run(run: Path) -> list[Path]:
    """Event files of ``weft train`` itself, which carry a host's name and a process's number."""
    return sorted(path for path in run.glob("events.out.tfevents.*") if path.suffix != ".weft")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m weft.tensorboard", description="metrics as TensorBoard events")
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, each with a metrics.jsonl")
    status = 0
    for run in parser.parse_args(arguments).runs:
        if own := written_by_the_run(run):
            print(f"{own[-1]} (written by the run itself)")
            continue
        try:
            print(convert(run))
        except (RunError, OSError) as error:
            print(error, file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
