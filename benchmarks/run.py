"""Runs the benchmarks and writes their figures to benchmarks/results.jsonl, one JSON line per figure.

python benchmarks/run.py [--only collective]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results.jsonl"
MPIRUN = str(ROOT / "scripts" / "mpirun")

# Commands for each folder of benchmarks/. Every program prints its figures as JSON lines.
SUITES: dict[str, list[list[str]]] = {
    "aggregation": [
        [MPIRUN, "-n", "1", str(ROOT / "build/release/benchmarks/packet_mac")],
        [str(ROOT / "build/release/benchmarks/loopback"), "2", "512"],
        [str(ROOT / "build/release/benchmarks/links"), "0", "100", "4", "8"],
        [str(ROOT / "build/release/benchmarks/links"), "0", "0", "4"],
        [str(ROOT / "build/release/benchmarks/links"), "1", "0", "4"],
        [sys.executable, str(ROOT / "benchmarks/aggregation/backends.py")],
    ],
    "collective": [
        [MPIRUN, "-n", "2", str(ROOT / "build/release/benchmarks/forward_backward")],
        [MPIRUN, "-n", "2", sys.executable, str(ROOT / "benchmarks/collective/python_overhead.py")],
    ],
    "data": [[MPIRUN, "-n", "1", str(ROOT / "build/release/benchmarks/loading")]],
    "experiment": [
        [
            MPIRUN,
            "-n",
            "2",
            str(ROOT / "build/release/benchmarks/images_per_second"),
            str(ROOT / "examples/experiments"),
        ],
        [sys.executable, str(ROOT / "benchmarks/experiment/plain_torch.py")],
    ],
    "layer_parallel": [
        [MPIRUN, "-n", "2", str(ROOT / "build/release/benchmarks/training_step")],
        [MPIRUN, "-n", "2", sys.executable, str(ROOT / "benchmarks/layer_parallel/training_step.py")],
        [MPIRUN, "-n", "2", sys.executable, str(ROOT / "benchmarks/layer_parallel/peak_memory.py")],
    ],
    "memory": [[sys.executable, str(ROOT / "benchmarks/memory/allocator.py")]],
    "multigrid": [
        [MPIRUN, "-n", "1", str(ROOT / "build/release/benchmarks/engine")],
        [MPIRUN, "-n", "2", str(ROOT / "build/release/benchmarks/engine")],
    ],
    "node": [
        [MPIRUN, "-n", "2", str(ROOT / "build/release/benchmarks/collectives")],
        [MPIRUN, "-n", "4", str(ROOT / "build/release/benchmarks/collectives"), "all_reduce", "67108864"],
    ],
    "process_group": [
        [MPIRUN, "-n", "2", sys.executable, str(ROOT / "benchmarks/process_group/operations.py")],
        [MPIRUN, "-n", "4", sys.executable, str(ROOT / "benchmarks/process_group/operations.py")],
        [MPIRUN, "-n", "2", sys.executable, str(ROOT / "benchmarks/process_group/ddp_step.py")],
    ],
    "time_parallel": [
        [MPIRUN, "-n", "2", sys.executable, str(ROOT / "benchmarks/time_parallel/recurrent.py")],
    ],
    "trace": [[MPIRUN, "-n", "1", str(ROOT / "build/release/benchmarks/span")]],
    "spatial": [[MPIRUN, "-n", "2", sys.executable, str(ROOT / "benchmarks/spatial/convolution.py")]],
}


def run(command: list[str]) -> list[dict[str, object]]:
    print("$", " ".join(command), flush=True)
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    sys.stderr.write(completed.stderr)
    if completed.returncode != 0:
        raise SystemExit(f"benchmark failed with status {completed.returncode}")
    return [json.loads(line) for line in completed.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(SUITES), help="run one folder of benchmarks")
    chosen = parser.parse_args().only
    figures = [
        figure for name in SUITES if chosen in (None, name) for command in SUITES[name] for figure in run(command)
    ]
    with RESULTS.open("w") as file:
        for figure in figures:
            file.write(json.dumps(figure) + "\n")
            print(
                f"{figure['name']:45} {figure['value']:>12} {figure['unit']}   {figure['ratio']:>7} x {figure['peer']}"
            )


if __name__ == "__main__":
    main()
