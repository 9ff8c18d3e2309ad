"""``weft sml-demo``: errors are sentences, not tracebacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from jobs import outside_of_any_job
from weft.tools import sml_demo


@pytest.mark.parametrize("arguments", [["--epochs=0"], ["--batch=0"], ["--workers=0"], ["--images=1", "--workers=2"]])
def test_rejects_impossible_numbers(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sml_demo.parse(arguments)
    assert "must be at least" in capsys.readouterr().err


def test_a_failed_worker_prints_a_sentence() -> None:
    command = [sys.executable, "-m", "weft.tools.sml_demo", "--worker", "--backend=nothing"]
    done = subprocess.run(command, env=outside_of_any_job(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "weft sml-demo: a worker failed: " in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_a_switch_that_does_not_start_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "weft-switch"
    broken.write_text("")
    monkeypatch.setattr(sml_demo, "find_switch", lambda: str(broken))
    assert sml_demo.main([]) == 1
    assert capsys.readouterr().err == f"weft sml-demo: cannot start '{broken}': Permission denied\n"
