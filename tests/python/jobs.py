"""Starts jobs in separate processes, for tests of crashes, hangs and exits."""

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
    """Returns the environment without launcher variables, which a test has if it is a rank itself."""
    return {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS_OWN)}


def _command(path: Path, program: str, ranks: int) -> list[str]:
    script = path / "job.py"
    script.write_text("import torch, weft\n" + textwrap.dedent(program))
    return [str(LAUNCHER), "-n", str(ranks), sys.executable, str(script)]


def run(path: Path, program: str, ranks: int = 2, **environment: str) -> tuple[int, str, float]:
    """Runs a job; returns status, stdout and stderr, and seconds."""
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
    """Starts a job; its stdout pipe also carries stderr."""
    return subprocess.Popen(
        _command(path, program, ranks),
        env={**outside_of_any_job(), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_until_ready(path: Path, program: str, **environment: str) -> subprocess.Popen[str]:
    """Starts a job of two ranks and returns once it has printed "ready"; later output remains to be read."""
    job = begin(path, program, **environment)
    assert job.stdout is not None
    head = ""
    while "ready" not in head and (line := job.stdout.readline()):
        head += line
    return job
