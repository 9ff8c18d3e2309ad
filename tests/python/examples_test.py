"""The examples run, in Python and C++: fits are what numpy's exact solution says, tiles train as one process does."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

import weft

ROOT = Path(__file__).resolve().parent.parent.parent
LAUNCHER = str(ROOT / "scripts" / "mpirun")
CPP = Path(weft.library_path).parent.parent / "examples" / "linear_regression"
PROGRAMS = {"python": [sys.executable, str(ROOT / "examples/python/linear_regression.py")], "cpp": [str(CPP)]}
UNETS = {
    "python": [sys.executable, str(ROOT / "examples/python/unet_segmentation.py"), "--size", "32", "--steps", "4"],
    "cpp": [str(CPP.with_name("unet_segmentation")), "32", "4"],
}


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


def unet(language: str, ranks: int, *arguments: str) -> float:
    """The loss of the last step."""
    command = [LAUNCHER, "-n", str(ranks), *UNETS[language], *arguments]
    job = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert job.returncode == 0, job.stdout + job.stderr
    line = re.search(rf"{ranks} ranks: final loss (\S+),", job.stdout)
    assert line, job.stdout
    return float(line.group(1))


@pytest.mark.parametrize("language", sorted(UNETS))
def test_unet_trains_alike_on_any_number_of_ranks(language: str) -> None:
    if language == "cpp" and not Path(UNETS["cpp"][0]).exists():
        pytest.skip("this build has no C++ examples")
    alone = unet(language, 1)
    assert unet(language, 2) == pytest.approx(alone, abs=1e-4)


@pytest.mark.parametrize("language", sorted(UNETS))
def test_unet_writes_pictures(language: str, tmp_path: Path) -> None:
    if language == "cpp" and not Path(UNETS["cpp"][0]).exists():
        pytest.skip("this build has no C++ examples")
    unet(language, 2, *(["--output"] if language == "python" else []), str(tmp_path))
    for name in ("input", "truth", "prediction"):
        data = (tmp_path / f"{name}.png").read_bytes()
        assert data.startswith(b"\x89PNG\r\n\x1a\n") and struct.unpack(">II", data[16:24]) == (32, 32)
        crc = struct.unpack(">I", data[29:33])[0]
        assert crc == zlib.crc32(data[12:29])
        body = zlib.decompress(data[41 : 41 + struct.unpack(">I", data[33:37])[0]])
        assert len(body) == 32 * (1 + 3 * 32)
