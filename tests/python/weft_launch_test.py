"""weft train -n starts its ranks: also as the first process."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from weft_jobs import checkpoint_steps, command, environment, toy_file

NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc"]


def may_have_namespaces() -> bool:
    return (
        shutil.which("unshare") is not None
        and subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not may_have_namespaces(), reason="namespaces of processes are not permitted")
def test_as_process_1(tmp_path: Path) -> None:
    """As a container starts it; every child's parent then is process 1, and lives."""
    out = tmp_path / "run"
    arguments = command("train", "-n", "2", toy_file(tmp_path), "--out", out, "--set", "model.epochs=1")
    done = subprocess.run(
        [*NAMESPACE, *arguments], env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert checkpoint_steps(out)[-1] == 30
