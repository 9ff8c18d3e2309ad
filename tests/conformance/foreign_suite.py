"""Runs the tests of another project from a checkout that an environment variable names."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

LAUNCHER = Path(__file__).parents[2] / "scripts" / "mpirun"


def checkout(project: str, tests: Sequence[str] = ()) -> Path:
    """Returns the folder of the tests. Exits with status 0 if the variable is unset, 1 if tests are missing."""
    variable = f"WEFT_{project.upper()}_SUITE"
    given = os.environ.get(variable, "")
    if not given:
        print(f"SKIPPED: set {variable} to the folder of a checkout of {project} to run its tests")
        sys.exit(0)
    folder = Path(given) / "tests"
    missing = [name for name in tests if not (folder / name).is_file()] if folder.is_dir() else ["tests"]
    if missing:
        print(f"{variable}={given}: {', '.join(missing)} not found")
        sys.exit(1)
    return folder


def run(folder: Path, arguments: Sequence[str], ranks: int, tests: int) -> bool:
    """Returns whether ``tests`` tests passed on every rank; prints the output otherwise."""
    command = [str(LAUNCHER), "-n", str(ranks), sys.executable, *arguments]
    try:
        job = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    except subprocess.TimeoutExpired as error:
        print(f"timed out after {error.timeout} s")
        return False
    text = job.stdout + job.stderr
    ran = [int(count) for count in re.findall(r"Ran (\d+) tests? in", text)]
    passed = job.returncode == 0 and ran == [tests] * ranks and len(re.findall(r"^OK$", text, re.M)) == ranks
    if not passed:
        print(text)
    return passed
