"""TensorBoard files of C++ and of Python, by a reader written from the definitions of TFRecord and protocol buffers."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from weft import tensorboard

BUILD = Path(os.environ.get("WEFT_LIBRARY_DIR", Path(__file__).parents[2] / "build/release/lib")).parent


def crc32c(data: bytes) -> int:
    """Bit by bit: polynomial division, with the reflected polynomial 0x82F63B78."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def records(content: bytes) -> list[bytes]:
    """Length (uint64), its masked checksum, data, its masked checksum; all little-endian."""

    def check(data: bytes, stored: bytes) -> None:
        crc = crc32c(data)
        masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
        assert struct.unpack("<I", stored)[0] == masked

    found = []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        check(content[:8], content[8:12])
        data, content = content[12 : 12 + length], content[12 + length :]
        assert len(data) == length
        check(data, content[:4])
        content = content[4:]
        found.append(data)
    return found


def varint(data: bytes) -> tuple[int, bytes]:
    value = shift = 0
    while True:
        value |= (data[0] & 0x7F) << shift
        shift += 7
        if data[0] < 0x80:
            return value, data[1:]
        data = data[1:]


def fields(data: bytes) -> dict[int, Any]:
    result: dict[int, Any] = {}
    while data:
        key, data = varint(data)
        number, wire = key >> 3, key & 7
        if wire == 0:
            result[number], data = varint(data)
        elif wire == 1:
            result[number], data = struct.unpack("<d", data[:8])[0], data[8:]
        elif wire == 5:
            result[number], data = struct.unpack("<f", data[:4])[0], data[4:]
        else:
            assert wire == 2
            length, data = varint(data)
            result[number], data = data[:length], data[length:]
    return result


def scalars(content: bytes) -> list[tuple[str, int, float, float]]:
    """Name, step, value, time. Event: 1 wall_time, 2 step, 3 file_version, 5 summary; Summary.Value: 1 tag, 2 value."""
    first, *rest = [fields(record) for record in records(content)]
    assert first[3] == b"brain.Event:2"
    result = []
    for event in rest:
        value = fields(fields(event[5])[1])
        step = event[2] - 2**64 if event[2] >= 2**63 else event[2]
        result.append((value[1].decode(), step, value[2], event[1]))
    return result


def test_the_reader_itself() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert varint(b"\x96\x01rest") == (150, b"rest")  # the example in protocol buffers' documentation


def test_files_that_a_run_writes(tmp_path: Path) -> None:
    program = BUILD / "tests/trace/tensorboard_test"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    environment = {**os.environ, "WEFT_EVENTS_FOLDER": str(tmp_path)}
    subprocess.run([str(program), "--gtest_filter=TensorBoard.Scalars"], env=environment, check=True, timeout=60)
    (file,) = (tmp_path / "run").iterdir()
    assert file.name.startswith("events.out.tfevents.")
    got = scalars(file.read_bytes())
    assert got[:2] == [
        ("train/loss", 0, 0.5, 1000.25),
        ("train/loss", 300, struct.unpack("f", struct.pack("f", 1 / 3))[0], 1001.5),
    ]
    assert got[2][:2] == ("grüß", 2**40) and math.isclose(got[2][2], -1e30, rel_tol=1e-7)
    assert got[3][:2] == ("x" * 300, -1) and math.isnan(got[3][2])


def write_run(folder: Path, lines: list[str]) -> Path:
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_metrics_are_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(
        tmp_path / "run",
        [
            json.dumps({"epoch": 0, "step": 1, "name": "train/loss", "value": 0.5, "time": 1700000000.5}),
            json.dumps({"epoch": 0, "step": 2, "name": "train/loss", "value": "NaN", "time": 1700000001}),
            json.dumps({"epoch": 0, "step": 2**35, "name": "ü" * 200, "value": 1e300, "time": 1700000002}),
            '{"epoch": 0, "st',
        ],
    )
    assert tensorboard.main([str(run)]) == 0
    assert tensorboard.main([str(run)]) == 0  # again: in place of the first
    (file,) = run.glob("events.out.tfevents.*")
    assert str(file) in capsys.readouterr().out
    got = scalars(file.read_bytes())
    assert got[0] == ("train/loss", 1, 0.5, 1700000000.5)
    assert got[1][:2] == ("train/loss", 2) and math.isnan(got[1][2])
    assert got[2] == ("ü" * 200, 2**35, math.inf, 1700000002)  # a float holds no 1e300
    assert len(got) == 3


def test_runs_without_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write_run(tmp_path / "good", ['{"step": 1, "name": "a", "value": 1}'])
    assert tensorboard.main([str(tmp_path / "absent"), str(tmp_path), str(good)]) == 1
    errors = capsys.readouterr().err
    assert "absent" in errors and "metrics.jsonl" in errors
    assert list(good.glob("events*"))
