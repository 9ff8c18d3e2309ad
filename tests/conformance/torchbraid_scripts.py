"""Runs torchbraid's example and driver scripts, unmodified, and compares their losses with those of torchbraid.

WEFT_TORCHBRAID_SUITE names a checkout. The scripts run in a copy of it with small settings and synthetic data
(torchbraid_data.py). They need torchvision, matplotlib and requests; scripts whose modules are missing are skipped.
data/torchbraid-scripts.json holds the numbers of torchbraid. To produce it, run this file with a Python that imports
the original torchbraid, and the argument --record.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torchbraid_data
import uci_har_data
from foreign_suite import LAUNCHER

GOLDEN = Path(__file__).parent / "data" / "torchbraid-scripts.json"
RUNNER = Path(__file__).with_name("torchbraid_run.py")
RECURRENT = ("examples/UCI_HAR_Recurrent", "drivers/rnns/uci-har")
FOLDERS = ("examples/mnist", "examples/modelnet", "drivers/sine", "drivers/mnist", "drivers/cifar10", *RECURRENT)
SMALL = "--batch-size 20 --log-interval 1"
HIERARCHY = f"--steps 4 --samp-ratio 0.002 --ni-levels 2 --epochs 1 {SMALL}"
SEQUENCES = f"--percent-data 0.01 --hidden-size 8 --epochs 1 {SMALL}"  # of 7,352, the size of the original set
RELATIVE, ABSOLUTE = 1e-3, 1e-4  # sums of single precision numbers differ in their order, and training amplifies it


@dataclass(frozen=True)
class Script:
    """A script with its arguments. ``ranks`` are those of the drop-in; the first is that of torchbraid.

    In torchbraid, each rank initialises its own layers, so the numbers of layer-parallel ranks depend on their count.
    The drop-in must give the numbers of one rank on any number of ranks.
    """

    folder: str
    name: str
    arguments: str
    ranks: tuple[int, ...]
    compared: bool = True
    # torchbraid updates the running statistics of nn.BatchNorm2d in every evaluation of a layer, so its losses in
    # evaluation mode are wrong; only the losses of training are compared.
    normalised: bool = False

    @property
    def key(self) -> str:
        return f"{self.folder}/{self.name} {self.arguments}"


SCRIPTS = [
    Script("examples/mnist", "mnist_script.py", f"--percent-data 0.002 --epochs 2 {SMALL}", (1, 2)),
    Script("examples/mnist", "mnist_script_data_parallel.py", f"--dp-size 2 --steps 4 --epochs 1 {SMALL}", (2,)),
    Script(
        "examples/modelnet",
        "ModelNet_script.py",
        "--percent-data 1 --steps 8 --channels 2 --batch-size 6 --epochs 1 --log-interval 1 --lp-sc-levels 0",
        (1, 2),
    ),
    Script("drivers/sine", "main.py", "--epochs 2", (1,)),
    # The forward pass of torchbraid does not use the splines, and its backward pass fails.
    Script("drivers/sine", "main.py", "--epochs 1 --nsplines 5", (1,), compared=False),
    Script("drivers/mnist", "main.py", f"--percent-data 0.002 --digits --steps 8 --epochs 1 {SMALL}", (1, 2)),
    Script(
        "drivers/mnist", "main_dp.py", f"--dp-size 2 --percent-data 0.002 --digits --steps 8 --epochs 1 {SMALL}", (2,)
    ),
    Script("drivers/mnist", "main_mgopt.py", f"{HIERARCHY} --channels 2", (1,)),
    Script("drivers/cifar10", "main_mgopt.py", f"{HIERARCHY} --mgopt-levels 2", (1,), normalised=True),
    # It computes a standard deviation over the epochs, so it needs two.
    Script(
        "drivers/cifar10",
        "main_nested_iter.py",
        f"--steps 8 --samp-ratio 0.002 --channels 2 --epochs 2 {SMALL}",
        (1,),
        normalised=True,
    ),
    Script("examples/UCI_HAR_Recurrent", "UCI_HAR_GRU_script.py", SEQUENCES, (1, 2)),
    # It fails with torchbraid, because it uses an older interface.
    Script("drivers/rnns/uci-har", "train.py", f"{SEQUENCES} --lp-levels 2", (1, 2), compared=False),
]
MISSING = re.compile(r"ModuleNotFoundError: No module named '(?!torchbraid)[^']*'")
LOSS = re.compile(r"\b[Ll]oss: *(-?\d+\.\d+|nan|-?inf)")
TRAINING_LOSS = re.compile(r"\bLoss: *(-?\d+\.\d+|nan|-?inf)")


def prepare(checkout: Path, root: Path) -> None:
    """Copies the scripts and writes their data."""
    for folder in FOLDERS:
        shutil.copytree(checkout / folder, root / folder, ignore=shutil.ignore_patterns("*data", "*.png"))
    for folder in ("examples/mnist", "drivers/mnist"):
        for data in ("digit-data", "data"):
            torchbraid_data.write_mnist(root / folder / data)
        torchbraid_data.write_mnist(root / folder / "fashion-data", "FashionMNIST")
    torchbraid_data.write_cifar10(root / "drivers/cifar10/data")
    torchbraid_data.write_modelnet(root / "examples/modelnet")
    for folder in RECURRENT:
        uci_har_data.write(root / folder)
    # train.py prints the revision of its checkout.
    git = ["git", "-C", str(root), "-c", "user.name=weft", "-c", "user.email=weft"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "copy"], check=True)


def run(root: Path, script: Script, ranks: int) -> tuple[str, list[float]]:
    """Returns the outcome and the losses that the script prints."""
    command = [str(LAUNCHER), "-n", str(ranks), sys.executable, str(RUNNER), script.name, *script.arguments.split()]
    environment = {**os.environ, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    try:
        job = subprocess.run(
            command, cwd=root / script.folder, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
    except subprocess.TimeoutExpired:
        return "FAILED: timed out", []
    if job.returncode == 0:
        pattern = TRAINING_LOSS if script.normalised else LOSS
        return "passed", [float(number) for number in pattern.findall(job.stdout)]
    if missing := MISSING.search(job.stdout + job.stderr):
        return f"skipped: {missing.group()}", []
    print(job.stdout + job.stderr)
    return f"FAILED: exit status {job.returncode}", []


def differ(numbers: list[float], golden: list[float]) -> str:
    """Returns the first difference, or an empty text."""
    if len(numbers) != len(golden):
        return f"{len(numbers)} losses instead of {len(golden)}"
    for position, (ours, theirs) in enumerate(zip(numbers, golden, strict=True)):
        if not math.isclose(ours, theirs, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
            return f"loss {position} is {ours} instead of {theirs}"
    return ""


def compare(root: Path) -> int:
    golden = json.loads(GOLDEN.read_text())
    failed = 0
    for script in SCRIPTS:
        for ranks in script.ranks:
            outcome, numbers = run(root, script, ranks)
            if outcome == "passed" and script.compared:
                difference = differ(numbers, golden[script.key])
                outcome = f"FAILED: {difference}" if difference else f"passed: {len(numbers)} losses equal torchbraid's"
            print(f"{script.key} on {ranks} ranks: {outcome}", flush=True)
            failed += outcome.startswith("FAILED")
    return 1 if failed else 0


def record(root: Path) -> int:
    golden = {}
    for script in SCRIPTS:
        if not script.compared:
            continue
        outcome, golden[script.key] = run(root, script, script.ranks[0])
        print(f"{script.key}: {outcome}", flush=True)
        if outcome != "passed":
            return 1
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
    return 0


def main() -> int:
    checkout = os.environ.get("WEFT_TORCHBRAID_SUITE", "")
    if not checkout:
        print("SKIPPED: set WEFT_TORCHBRAID_SUITE to the folder of a checkout of torchbraid to run its scripts")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        prepare(Path(checkout), root)
        return record(root) if "--record" in sys.argv[1:] else compare(root)


if __name__ == "__main__":
    sys.exit(main())
