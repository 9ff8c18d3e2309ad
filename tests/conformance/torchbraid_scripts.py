"""Runs torchbraid's example and driver scripts, unmodified, against the drop-in, with small settings.

WEFT_TORCHBRAID_SUITE names a checkout. The scripts need torchvision and matplotlib, and their data in the folders that
they read (torchvision's layout). Scripts whose modules or data are missing are skipped. Recurrent scripts get synthetic
data if theirs is missing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import uci_har_data
from foreign_suite import LAUNCHER

SMALL = ["--epochs", "1", "--batch-size", "20"]
HIERARCHY = ["--steps", "4", "--samp-ratio", "0.002", "--ni-levels", "2", *SMALL]
NESTED = ["--steps", "8", "--samp-ratio", "0.002", "--channels", "2"]
SCRIPTS: list[tuple[str, str, int, list[str]]] = [
    ("examples/mnist", "mnist_script.py", 2, ["--percent-data", "0.002", *SMALL]),
    ("examples/mnist", "mnist_script_data_parallel.py", 2, ["--percent-data", "0.002", *SMALL]),
    ("drivers/sine", "main.py", 1, ["--epochs", "1"]),
    ("drivers/sine", "main.py", 1, ["--epochs", "1", "--nsplines", "5"]),
    ("drivers/mnist", "main.py", 2, ["--percent-data", "0.002", "--digits", "--steps", "8", *SMALL]),
    ("drivers/mnist", "main_dp.py", 2, ["--percent-data", "0.002", "--digits", "--steps", "8", *SMALL]),
    ("drivers/mnist", "main_mgopt.py", 2, [*HIERARCHY, "--channels", "2"]),
    ("drivers/cifar10", "main_mgopt.py", 1, [*HIERARCHY, "--mgopt-levels", "2"]),
    # It computes a standard deviation over the epochs, so it needs two.
    ("drivers/cifar10", "main_nested_iter.py", 2, [*NESTED, "--epochs", "2", "--batch-size", "20"]),
]
# Recurrent networks. The scripts take fractions of a set of 7,352 sequences.
SEQUENCES = ["--percent-data", "0.01", "--hidden-size", "8", *SMALL]
RECURRENT: list[tuple[str, str, int, list[str]]] = [
    ("examples/UCI_HAR_Recurrent", "UCI_HAR_GRU_script.py", 1, SEQUENCES),
    ("examples/UCI_HAR_Recurrent", "UCI_HAR_GRU_script.py", 2, SEQUENCES),
    ("drivers/rnns/uci-har", "train.py", 2, [*SEQUENCES, "--lp-levels", "2"]),
]
MISSING = re.compile(r"ModuleNotFoundError: No module named '(?!torchbraid)[^']*'|Dataset not found[^\n]*")


def run(folder: Path, script: str, ranks: int, arguments: list[str]) -> str:
    command = [str(LAUNCHER), "-n", str(ranks), sys.executable, script, *arguments]
    environment = {**os.environ, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    try:
        job = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
    except subprocess.TimeoutExpired:
        return "FAILED: timed out"
    if job.returncode == 0:
        return "passed"
    missing = MISSING.search(job.stdout + job.stderr)
    if missing:
        return f"skipped: {missing.group()}"
    print(job.stdout + job.stderr)
    return f"FAILED: exit status {job.returncode}"


def main() -> int:
    checkout = os.environ.get("WEFT_TORCHBRAID_SUITE", "")
    if not checkout:
        print("SKIPPED: set WEFT_TORCHBRAID_SUITE to the folder of a checkout of torchbraid to run its scripts")
        return 0
    for folder in {Path(checkout) / folder for folder, *_ in RECURRENT}:
        if folder.exists() and not (folder / "UCI HAR Dataset").exists():
            uci_har_data.write(folder)
    failed = 0
    for folder, script, ranks, arguments in SCRIPTS + RECURRENT:
        outcome = run(Path(checkout) / folder, script, ranks, arguments)
        print(f"{folder}/{script} {' '.join(arguments)} on {ranks} ranks: {outcome}", flush=True)
        failed += outcome.startswith("FAILED")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
