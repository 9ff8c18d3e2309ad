"""The examples run, in Python and C++, and fit what numpy's exact solution says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft

ROOT = Path(__file__).resolve().parent.parent.parent
LAUNCHER = str(ROOT / "scripts" / "mpirun")
CPP = Path(weft.library_path).parent.parent / "examples" / "linear_regression"
PROGRAMS = {"python": [sys.executable, str(ROOT / "examples/python/linear_regression.py")], "cpp": [str(CPP)]}


def exact_fit() -> np.ndarray:
    """The least squares solution for the points that both programs make."""
    i = np.arange(10_000)
    x = i / 9_999 * 2 - 1
    y = 2 - 3 * x + 0.5 * x * x + 0.1 * np.sin(i * 12.9898)
    return np.linalg.lstsq(np.stack([np.ones_like(x), x, x * x], 1), y, rcond=None)[0]


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("language", sorted(PROGRAMS))
def test_linear_regression(language: str, ranks: int) -> None:
    if language == "cpp" and not CPP.exists():
        pytest.skip("this build has no C++ examples")
    command = [LAUNCHER, "-n", str(ranks), *PROGRAMS[language]]
    job = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert job.returncode == 0, job.stdout + job.stderr
    line = re.search(rf"{ranks} ranks: (\S+) (\S+) (\S+)", job.stdout)
    assert line, job.stdout
    assert np.allclose([float(number) for number in line.groups()], exact_fit(), atol=1e-6)
