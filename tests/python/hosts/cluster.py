"""A cluster of simulated hosts (scripts/hosts.sh) for the lifetime of an object."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Self

import pytest
from jobs import outside_of_any_job

SCRIPT = Path(__file__).parents[3] / "scripts" / "hosts.sh"
SECONDS = 300  # until a job counts as hanging
_numbers = itertools.count()


def _hosts(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


def requires_hosts() -> None:
    """Skips the calling test module if this machine does not permit namespaces."""
    if _hosts("possible").returncode != 0:
        pytest.skip("namespaces are not permitted", allow_module_level=True)


class Cluster:
    def __init__(self, hosts: int, ranks_per_host: int, *options: str) -> None:
        self.hosts = hosts
        self.ranks_per_host = ranks_per_host
        self._name = f"weft-{os.getpid()}-{next(_numbers)}"
        self._options = options

    def __enter__(self) -> Self:
        up = _hosts("up", self._name, self.hosts, *self._options)
        assert up.returncode == 0, up.stderr
        return self

    def __exit__(self, *_: object) -> None:
        _hosts("down", self._name)

    def connect(self, host: int, connected: bool) -> None:
        """Connects a host to the network or disconnects it."""
        link = _hosts("link", self._name, host, "up" if connected else "down")
        assert link.returncode == 0, link.stderr

    def first_process(self, host: int) -> int:
        """Returns the id of the process that holds the namespaces of a host."""
        return int(Path(f"/run/weft-hosts/{self._name}-{host}.init").read_text())

    def crash(self, host: int) -> None:
        """Ends all processes of a host."""
        os.kill(self.first_process(host), 9)

    def processes(self, host: int) -> list[str]:
        """Returns the command lines of a host's processes, except the first one, which holds its namespaces.

        The first process does not reap the others, so those that have ended are still in the table.
        """
        table = _hosts("on", self._name, host, "ps", "-wweo", "args=").stdout.splitlines()
        return [line for line in table if line not in ("sleep infinity", "ps -wweo args=") and "<defunct>" not in line]

    def begin(self, *command: object, **environment: str) -> subprocess.Popen[str]:
        """Starts a job on all hosts; its stdout pipe also carries stderr."""
        return subprocess.Popen(
            [str(SCRIPT), "mpirun", self._name, str(self.ranks_per_host), *map(str, command)],
            env={**outside_of_any_job(), "OMP_NUM_THREADS": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: object, **environment: str) -> tuple[int, str]:
        """Runs a job on all hosts; returns its status and output."""
        job = self.begin(*command, **environment)
        try:
            output, _ = job.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            job.kill()
            output, _ = job.communicate()
            pytest.fail(f"the job hangs; its output is:\n{output}")
        return job.returncode, output


def program(folder: Path, source: str) -> list[str]:
    """Writes a Python program that imports torch and weft; returns its command line."""
    script = folder / "job.py"
    script.write_text("import torch, weft\n" + textwrap.dedent(source))
    return [sys.executable, str(script)]
