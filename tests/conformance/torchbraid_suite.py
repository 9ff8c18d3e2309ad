"""Runs torchbraid's own tests, unmodified, against the drop-in on 1 and 3 ranks, as its own scripts do.

The tests are not part of this repository: WEFT_TORCHBRAID_SUITE names the folder of a checkout that holds its ``tests``
folder. Without it the script says so and skips, with status 0. The files about GRUs, mgopt and GPUs are left out.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

RANKS = (1, 3)
TESTS = {
    "test_layer_parallel": 7,
    "test_layer_parallel_multinode": 2,
    "test_composite": 2,
    "test_grad_update": 2,
    "test_FlatPackUnpack": 2,
    "test_ContextTimer": 1,
    "test_mean_initial_guess": 4,
    "test_data_parallel": 1,
    "test_callbacks": 4,
}
LAUNCHER = Path(__file__).parents[2] / "scripts" / "mpirun"


def run_file(file: Path, ranks: int) -> str:
    """Empty if all tests passed on every rank, else the output."""
    command = [str(LAUNCHER), "-n", str(ranks), sys.executable, str(file)]
    try:
        job = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired as error:
        return f"no end after {error.timeout} s"
    text = job.stdout + job.stderr
    ran = [int(count) for count in re.findall(r"Ran (\d+) tests? in", text)]
    passed = ran == [TESTS[file.stem]] * ranks and len(re.findall(r"^OK$", text, re.M)) == ranks
    return "" if job.returncode == 0 and passed else text


def main() -> int:
    given = os.environ.get("WEFT_TORCHBRAID_SUITE", "")
    if not given:
        print("SKIPPED: set WEFT_TORCHBRAID_SUITE to the folder of a torchbraid checkout to run its tests")
        return 0
    folder = Path(given) / "tests"
    missing = [name for name in TESTS if not (folder / f"{name}.py").is_file()]
    if missing:
        print(f"{folder} does not hold {', '.join(f'{name}.py' for name in missing)}")
        return 1
    failed = 0
    for ranks in RANKS:
        for name, count in TESTS.items():
            problem = run_file(folder / f"{name}.py", ranks)
            print(f"{name}, {count} tests on {ranks} ranks: {'FAILED' if problem else 'passed'}", flush=True)
            if problem:
                failed += 1
                print(problem)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
