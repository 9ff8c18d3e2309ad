"""TensorBoard files, read with an independent reader."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
from pathlib import Path

import pytest
from event_files import RESTART, crc32c, scalars, varint
from weft.tools import tensorboard

BUILD = Path(os.environ.get("WEFT_LIBRARY_DIR", Path(__file__).parents[3] / "build/release/lib")).parent


def test_reader_matches_published_values() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert varint(b"\x96\x01rest") == (150, b"rest")  # example from the protocol buffer documentation


def test_cpp_files_contain_the_written_scalars(tmp_path: Path) -> None:
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
    assert got[4] == (RESTART, 301, 0.0, 1002.0)


def write_run(folder: Path, lines: list[str]) -> Path:
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_metrics_become_scalars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert tensorboard.main([str(run)]) == 0  # replaces the first file
    (file,) = run.glob("events.out.tfevents.*")
    assert str(file) in capsys.readouterr().out
    got = scalars(file.read_bytes())
    assert got[0] == ("train/loss", 1, 0.5, 1700000000.5)
    assert got[1][:2] == ("train/loss", 2) and math.isnan(got[1][2])
    assert got[2] == ("ü" * 200, 2**35, math.inf, 1700000002)  # 1e300 exceeds the range of a float
    assert len(got) == 3


def test_lone_surrogates_are_replaced(tmp_path: Path) -> None:
    name = json.dumps("a\ud800b\udfff\U0001f600\x1b")  # the pair forms one character
    run = write_run(tmp_path / "run", [f'{{"step": 1, "name": {name}, "value": 1}}'])
    assert tensorboard.main([str(run)]) == 0
    (file,) = run.glob("events.out.tfevents.*")
    assert scalars(file.read_bytes())[0][:2] == ("a\ufffdb\ufffd\U0001f600\x1b", 1)


def test_runs_without_metrics_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write_run(tmp_path / "good", ['{"step": 1, "name": "a", "value": 1}'])
    empty = write_run(tmp_path / "empty", [])
    assert tensorboard.main([str(tmp_path / "absent"), str(tmp_path), str(empty), str(good)]) == 1
    errors = capsys.readouterr().err
    assert "absent" in errors and "is not a run folder" in errors and "metrics.jsonl" in errors
    assert list(good.glob("events*"))


def test_existing_event_files_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", ['{"step": 1, "name": "a", "value": 1}'])
    (run / "events.out.tfevents.1700000000.host.12").write_bytes(b"")
    assert tensorboard.main([str(run)]) == 0
    assert "events.out.tfevents.1700000000.host.12 (written by the run itself)" in capsys.readouterr().out
    assert len(list(run.glob("events*"))) == 1  # a second file would show every value twice
