"""Whether another package in this process, or in a fresh one, uses the same MPI library as weft."""

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
    """The files of the MPI libraries that this process has loaded: one, if all is well."""
    try:
        return _libraries(Path("/proc/self/maps").read_text())
    except OSError:  # not Linux: nothing known
        return set()


def require_one_mpi() -> None:
    """Handles of one MPI library mean nothing to another, or crash it."""
    loaded = mpi_libraries()
    if len(loaded) > 1:
        raise RuntimeError(
            "weft: mpi4py and weft use different MPI libraries, so they share no communicators: "
            f"{', '.join(sorted(loaded))}. Set MPI4PY_LIBMPI to the one that weft was built with, or build weft anew."
        )


def mpi4py_libraries() -> set[str] | None:
    """What mpi4py would load, tried in a process of its own; None where there is no mpi4py, or it fails."""
    if importlib.util.find_spec("mpi4py") is None:
        return None
    probe = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=60, check=False)
    return _libraries(probe.stdout) or None
