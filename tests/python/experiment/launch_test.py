"""Tests how weft train -n starts its ranks: as process 1, and with a signal during startup."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from experiment.weft_command import checkpoint_steps, command, environment, toy_file

NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc"]
PATIENCE = 60.0  # seconds


def can_create_namespaces() -> bool:
    return (
        shutil.which("unshare") is not None
        and subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not can_create_namespaces(), reason="PID namespaces are not permitted")
def test_trains_as_process_1(tmp_path: Path) -> None:
    """In a container, weft is process 1 and the parent of every child."""
    out = tmp_path / "run"
    arguments = command("train", "-n", "2", toy_file(tmp_path), "--out", out, "--set", "model.epochs=1")
    done = subprocess.run(
        [*NAMESPACE, *arguments], env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert checkpoint_steps(out)[-1] == 30


def test_ctrl_c_ends_the_job_while_ranks_start(tmp_path: Path) -> None:
    """The signal kills ranks without a handler; a fake launcher stands in for them."""
    started = tmp_path / "started"
    launcher = tmp_path / "launcher"
    launcher.write_text(f"#!/bin/sh\ntouch {started}\nexec sleep {PATIENCE:.0f}\n")
    launcher.chmod(0o755)
    job = subprocess.Popen(
        command("train", "-n", "2", toy_file(tmp_path), "--out", tmp_path / "run"),
        env={**environment(), "WEFT_MPIRUN": str(launcher)},
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + PATIENCE
    while not started.exists() and job.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    job.send_signal(signal.SIGINT)
    _, errors = job.communicate(timeout=PATIENCE)
    assert job.returncode == 130, errors
    assert errors == "weft: stopped before training started\n"
