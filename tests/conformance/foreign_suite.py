"""Another project's own tests: not part of this repository, run from a checkout that a variable names."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

LAUNCHER = Path(__file__).parents[2] / "scripts" / "mpirun"


def checkout(project: str, tests: Sequence[str] = ()) -> Path:
    """The folder of its tests; ends the program if nobody named one (status 0), or if it lacks tests (status 1)."""
    variable = f"WEFT_{project.upper()}_SUITE"
    given = os.environ.get(variable, "")
    if not given:
        print(f"SKIPPED: set {variable} to the folder of a checkout of {project} to run its tests")
        sys.exit(0)
    folder = Path(given) / "tests"
    missing = [name for name in tests if not (folder / name).is_file()] if folder.is_dir() else ["tests"]
    if missing:
        print(f"{variable}={given} does not hold {', '.join(missing)}")
        sys.exit(1)
    return folder


def run(folder: Path, arguments: Sequence[str], ranks: int, tests: int) -> bool:
    """Whether that many tests passed on every rank; prints the output if not."""
    command = [str(LAUNCHER), "-n", str(ranks), sys.executable, *arguments]
    try:
        job = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    except subprocess.TimeoutExpired as error:
        print(f"no end after {error.timeout} s")
        return False
    text = job.stdout + job.stderr
    ran = [int(count) for count in re.findall(r"Ran (\d+) tests? in", text)]
    passed = job.returncode == 0 and ran == [tests] * ranks and len(re.findall(r"^OK$", text, re.M)) == ranks
    if not passed:
        print(text)
    return passed
