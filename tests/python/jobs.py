"""Jobs that tests start: what ends, hangs or breaks does so in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

LAUNCHER = Path(__file__).parents[2] / "scripts" / "mpirun"
LAUNCHERS_OWN = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "HYDRA_", "MPIR_")


def outside_of_any_job() -> dict[str, str]:
    """A test may be a rank itself: what its launcher told it must not reach the job's."""
    return {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS_OWN)}


def _command(path: Path, program: str, ranks: int) -> list[str]:
    script = path / "job.py"
    script.write_text("import torch, weft\n" + textwrap.dedent(program))
    return [str(LAUNCHER), "-n", str(ranks), sys.executable, str(script)]


def run(path: Path, program: str, ranks: int = 2, **environment: str) -> tuple[int, str, float]:
    """Status, stdout and stderr, seconds."""
    command = _command(path, program, ranks)
    start = time.monotonic()
    job = subprocess.run(
        command,
        env={**outside_of_any_job(), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return job.returncode, job.stdout + job.stderr, time.monotonic() - start


def begin(path: Path, program: str, ranks: int = 2, **environment: str) -> subprocess.Popen[str]:
    """A job that goes on; what it prints, on stderr too, is to be read from its stdout."""
    return subprocess.Popen(
        _command(path, program, ranks),
        env={**outside_of_any_job(), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_until_ready(path: Path, program: str, **environment: str) -> subprocess.Popen[str]:
    """A job of two ranks that has printed "ready" and goes on; what it prints later is still to be read."""
    job = begin(path, program, **environment)
    assert job.stdout is not None
    head = ""
    while "ready" not in head and (line := job.stdout.readline()):
        head += line
    return job
