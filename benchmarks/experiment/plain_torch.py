"""Trains mnist_tuned.yaml with `weft train` on 1 and 2 ranks, and the same network in a loop of plain torch.

python benchmarks/experiment/plain_torch.py [--epochs 2] [--rounds 5]

Every job uses one thread per rank unless its name states another number. The time and CPU time of a job with 0 epochs
(start, data, first checkpoint) are subtracted from those of the others. Each round runs all jobs once; the figures are
medians over rounds. "2 copies" starts two jobs of one rank at the same time: twice the time of one rank divided by
theirs is the speed-up that the machine permits.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples" / "experiments" / "mnist_tuned.yaml"
BATCH, RATE, LAST = 64, 0.002, 0.02
# Options of `weft train`.
JOBS = {
    "plain torch": None,
    "1 rank": ["-n", "1", "--threads", "1"],
    "2 ranks, batch": ["-n", "2", "--threads", "1", "--set", "split=batch"],
    "2 ranks, tiles": ["-n", "2", "--threads", "1", "--set", "split=tiles"],
    "1 rank, 2 threads": ["-n", "1", "--threads", "2"],
    "2 copies": ["-n", "1", "--threads", "1"],
}


def train_with_plain_torch(epochs: int) -> None:
    """Trains the network of mnist_tuned.yaml with the images, batches and learning rates of `weft train`."""
    import torch
    from torch import nn

    import weft.data

    torch.set_num_threads(1)
    torch.manual_seed(1)
    train, _ = weft.data.mnist()
    net = nn.Sequential(
        *(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10)),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    steps = len(train.labels) // BATCH
    for epoch in range(epochs):
        mistakes, total = 0, 0.0
        for step, batch in enumerate(weft.data.shuffled_batches(len(train.labels), epoch, size=BATCH, seed=1)):
            share = (epoch + step / steps) / epochs
            optimizer.param_groups[0]["lr"] = RATE * (LAST + (1 - LAST) * (1 + math.cos(math.pi * share)) / 2)
            images, labels = train.images[batch].float().div_(255), train.labels[batch].long()
            optimizer.zero_grad()
            outputs = net(images)
            loss = nn.functional.cross_entropy(outputs, labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
            mistakes += int((outputs.argmax(1) != labels).sum())
        print(f"epoch {epoch}: cost {total / steps:.4f}, mistakes {mistakes}", flush=True)


def command(job: str, epochs: int, out: str) -> list[str]:
    options = JOBS[job]
    if options is None:
        return [sys.executable, __file__, "--plain", str(epochs)]
    words = [*options, "--set", f"model.epochs={epochs}", "--set", "evaluate=false", "--out", out]
    return [str(ROOT / ".venv/bin/weft"), "train", str(FILE), *words]


def measured(job: str, epochs: int) -> tuple[float, float]:
    """Returns the seconds and the CPU seconds of a job."""
    with tempfile.TemporaryDirectory() as folder:
        commands = [command(job, epochs, f"{folder}/{copy}") for copy in range(2 if job == "2 copies" else 1)]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        started = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for words in commands]
        statuses = [process.wait() for process in started]
        if any(statuses):
            raise SystemExit(f"{job} failed: {commands[0]}")
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def report(name: str, value: float, unit: str, peer: str, peer_value: float) -> None:
    figure = {"name": f"experiment/mnist_tuned/{name}", "value": round(value, 3), "unit": unit}
    print(json.dumps({**figure, "peer": f"{peer} {peer_value:.3f} {unit}", "ratio": round(value / peer_value, 3)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plain", type=int, help="train with plain torch for this many epochs and exit")
    chosen = parser.parse_args()
    if chosen.plain is not None:
        return train_with_plain_torch(chosen.plain)
    seconds: dict[str, list[float]] = {job: [] for job in JOBS}
    cpu: dict[str, list[float]] = {job: [] for job in JOBS}
    for _ in range(chosen.rounds):
        for job in JOBS:
            idle, busy = measured(job, 0), measured(job, chosen.epochs)
            seconds[job].append(busy[0] - idle[0])
            cpu[job].append(busy[1] - idle[1])
    for job in list(JOBS)[1:]:
        peer = "plain torch" if job == "1 rank" else "1 rank"
        report(f"{job}/time", statistics.median(seconds[job]), "s", peer, statistics.median(seconds[peer]))
        report(f"{job}/cpu", statistics.median(cpu[job]), "s", peer, statistics.median(cpu[peer]))


if __name__ == "__main__":
    main()
