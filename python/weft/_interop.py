"""Checks that other packages use the same MPI library as weft."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

_MPI = re.compile(r"(/\S*/libmpi(?:ch|_abi)?\.so[.\d]*)$", re.MULTILINE)

_PROBE = """
import mpi4py
mpi4py.rc.initialize = mpi4py.rc.finalize = False
import mpi4py.MPI
print(open("/proc/self/maps").read())
"""


def _libraries(maps: str) -> set[str]:
    return set(_MPI.findall(maps))


def mpi_libraries() -> set[str]:
    """Returns the paths of the MPI libraries that this process has loaded; there should be one."""
    try:
        return _libraries(Path("/proc/self/maps").read_text())
    except OSError:  # not Linux: the libraries are unknown
        return set()


def require_one_mpi() -> None:
    """Raises RuntimeError if several MPI libraries are loaded, because their handles are not interchangeable."""
    loaded = mpi_libraries()
    if len(loaded) > 1:
        raise RuntimeError(
            "weft: mpi4py and weft use different MPI libraries and cannot share communicators: "
            f"{', '.join(sorted(loaded))}. Set MPI4PY_LIBMPI to the library that weft was built with, or rebuild weft."
        )


def mpi4py_libraries() -> set[str] | None:
    """Returns the MPI libraries that mpi4py loads in a new process; None if mpi4py is missing or fails."""
    if importlib.util.find_spec("mpi4py") is None:
        return None
    probe = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=60, check=False)
    return _libraries(probe.stdout) or None
