"""Runs mpi4torch's own test suite, unmodified, against the drop-in on 2, 3, 5 and 7 ranks.

The suite is not part of this repository: WEFT_MPI4TORCH_SUITE names the folder of a checkout that holds its ``tests``
folder. Without it the script says so and skips, with status 0.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

RANKS = (2, 3, 5, 7)
TESTS = 23
LAUNCHER = Path(__file__).parents[2] / "scripts" / "mpirun"


def run_suite(folder: Path, ranks: int) -> str:
    """Empty if all tests passed on every rank, else the output."""
    command = [str(LAUNCHER), "-n", str(ranks), sys.executable, "-m", "nose2", "-s", "tests"]
    job = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    text = job.stdout + job.stderr
    passed = len(re.findall(rf"Ran {TESTS} tests", text)) == ranks and len(re.findall(r"^OK$", text, re.M)) == ranks
    return "" if job.returncode == 0 and passed else text


def main() -> int:
    given = os.environ.get("WEFT_MPI4TORCH_SUITE", "")
    if not given:
        print("SKIPPED: set WEFT_MPI4TORCH_SUITE to the folder of an mpi4torch checkout to run its tests")
        return 0
    folder = Path(given)
    if not (folder / "tests").is_dir():
        print(f"WEFT_MPI4TORCH_SUITE={given} holds no tests folder")
        return 1
    failed = 0
    for ranks in RANKS:
        problem = run_suite(folder, ranks)
        print(f"mpi4torch's {TESTS} tests on {ranks} ranks: {'FAILED' if problem else 'passed'}", flush=True)
        if problem:
            failed += 1
            print(problem)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
