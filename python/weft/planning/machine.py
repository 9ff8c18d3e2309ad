"""The machine that a plan is made for, and jobs on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

JOB_VARIABLES = re.compile(r"(OMPI|PMIX|PMI|PRTE|HYDRA)_")
JOB_SECONDS = 600.0


class JobError(RuntimeError):
    """A job could not be started, or failed."""


def cores_of_this_machine() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Machine:
    """The network and the nodes. A message takes ``latency + bytes / bandwidth``.

    Raises ValueError for values out of range.
    """

    latency: float
    """Seconds."""
    bandwidth: float
    """Bytes per second."""
    cores: int
    """Cores of a node."""
    ranks_per_node: int | None = None
    """Ranks on each node; by default one per core. With more ranks than cores, work waits for a core."""

    def __post_init__(self) -> None:
        for name, least in (("latency", 0), ("bandwidth", 1), ("cores", 1)):
            if not getattr(self, name) >= least:
                raise ValueError(f"weft: expected {name} to be at least {least}, got {getattr(self, name)}")
        if self.ranks_per_node is not None and self.ranks_per_node < 1:
            raise ValueError(f"weft: expected ranks_per_node to be at least 1, got {self.ranks_per_node}")

    def describe(self) -> dict[str, Any]:
        """Returns the values as the library expects them."""
        return {**asdict(self), "ranks_per_node": self.ranks_per_node or self.cores}

    @classmethod
    def measure(cls, latency: float | None = None, bandwidth: float | None = None, cores: int | None = None) -> Machine:
        """Returns a machine; measures missing values with a job of two ranks on this machine. Raises JobError."""
        if latency is None or bandwidth is None:
            found = run_job(2, "weft.planning.ping_pong", {})
            latency = found["latency"] if latency is None else latency
            bandwidth = found["bandwidth"] if bandwidth is None else bandwidth
        return cls(latency, bandwidth, cores or cores_of_this_machine())


def run_job(ranks: int, module: str, arguments: dict[str, Any]) -> Any:
    """Runs ``python -m module`` on this machine with one thread per rank; returns the JSON that rank 0 prints.

    ``arguments`` reach the module as JSON in its first argument. Raises JobError.
    """
    launcher = _find_launcher()
    command = [launcher, "-n", str(ranks), sys.executable, "-m", module, json.dumps(arguments)]
    environment = {name: value for name, value in os.environ.items() if not JOB_VARIABLES.match(name)}
    environment["OMP_NUM_THREADS"] = str(arguments.get("threads", 1))
    try:
        job = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=JOB_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobError(f"weft: cannot run {ranks} ranks with {launcher}: {error}") from None
    lines = [line for line in job.stdout.splitlines() if line.startswith("{")]
    if job.returncode != 0 or not lines:
        reason = (job.stderr or job.stdout).strip().splitlines()
        raise JobError(f"weft: a job of {ranks} ranks failed: {reason[-1] if reason else 'no output'}")
    return json.loads(lines[-1])


def _find_launcher() -> str:
    beside = Path(sys.executable).parent / "mpirun"
    found = os.environ.get("WEFT_MPIRUN") or (str(beside) if beside.exists() else shutil.which("mpirun"))
    if found is None:
        raise JobError("weft: mpirun was not found; set WEFT_MPIRUN, or pass the latency and the bandwidth")
    return found
