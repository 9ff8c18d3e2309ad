"""Trains every distributed file of neon on 1 and 4 ranks and prints the rows of the table in docs/neon.md.

git clone https://github.com/anlthms/neon-old
WEFT_DATA=… python benchmarks/experiment/neon_files.py neon-old [--only 0.5/mnist_halopar] [--ranks 1 4]

The folder $WEFT_DATA contains MNIST and CIFAR10. Files in OPTIONS run with fewer epochs than they set.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
from pathlib import Path

WEFT = Path(__file__).resolve().parents[2] / ".venv/bin/weft"
# The commit and the folder of each version's files.
VERSIONS = {
    "October 2014": ("0aa59b2", "examples"),
    "0.5": ("v0.5.0", "examples/distributed"),
    "0.6": ("v0.6.0", "examples/distributed"),
}
OPTIONS = {
    "cifar10_vecpar_cpu_mlp": ["model.num_epochs=20"],
    "mnist_(datapar|vecpar)_[cg]pu_mlp-784-100-10": ["model.num_epochs=3"],
    "mnist_datapar_gpu_cnn-32-64-500-10": ["model.num_epochs=3"],
    "mnist_.*_gb": ["model.num_pretrain_epochs=1", "model.num_epochs=2"],
    "mnist_vecpar_cpu_mlp-784-2000-10": ["model.num_epochs=1"],
}


def git(clone: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", clone, *arguments], check=True, capture_output=True, text=True).stdout


def options_of(name: str) -> list[str]:
    found = next((settings for pattern, settings in OPTIONS.items() if re.fullmatch(pattern, name)), [])
    return [word for setting in found for word in ("--set", setting)]


def error_of(file: Path, ranks: int) -> str:
    """Returns the test error, or "rejected" if the file is invalid."""
    variables = {**os.environ, "HOME": str(file.parent)}  # neon's files keep their data in ~/data
    arguments = [WEFT, "train", "-n", str(ranks), file, *options_of(file.stem), "--out", file.with_suffix(f".{ranks}")]
    done = subprocess.run(arguments, env=variables, capture_output=True, text=True, check=False)
    if done.returncode == 2:
        return "rejected"
    found = re.findall(r"^test error: (\S+) of", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not found:
        raise SystemExit(f"{file.name} on {ranks} ranks failed:\n{done.stderr}")
    return found[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path, help="a clone of anlthms/neon-old")
    parser.add_argument("--only", default="", help="train only files whose version/name contains this text")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 4])
    chosen = parser.parse_args()
    print("| version | file | options |", " | ".join(f"{ranks} rank{'s' * (ranks > 1)}" for ranks in chosen.ranks), "|")
    print("|---|---|---|" + "---:|" * len(chosen.ranks))
    for version, (commit, folder) in VERSIONS.items():
        for name in git(chosen.clone, "ls-tree", "--name-only", f"{commit}:{folder}").split():
            distributed = folder.endswith("distributed") or "_distarray_" in name
            if not distributed or not name.endswith(".yaml") or chosen.only not in f"{version}/{name}":
                continue
            with tempfile.TemporaryDirectory() as home:
                file = Path(home) / name
                file.write_text(git(chosen.clone, "show", f"{commit}:{folder}/{name}"))
                errors = " | ".join(error_of(file, ranks) for ranks in chosen.ranks)
            options = " ".join(options_of(file.stem))
            print(f"| {version} | `{name}` | {f'`{options}`' if options else ''} | {errors} |", flush=True)


if __name__ == "__main__":
    main()
