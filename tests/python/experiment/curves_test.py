"""Tests the effect of single precision on learning curves, on one rank and in tiles on four.

With max pooling, batch costs differ by more than 1e-4 between any two orders of summation, even on one rank, most
likely because a maximum close to a tie sends the gradient to another input (docs/benchmarks.md has measurements).
Smooth networks do not show this, and double precision agrees to its last digits.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from experiment.weft_command import curve, weft

from weft import checkpoint

KINKS = """
- conv: {maps: 8, kernel: 5, bias: false}
- max_pool: 2
- conv: {maps: 16, kernel: 5, bias: false}
- max_pool: 2
- linear: {outputs: 40, bias: false, activation: relu}
- linear: {outputs: 10, bias: false, activation: logistic}
"""
SMOOTH = """
- conv: {maps: 8, kernel: 5, bias: false}
- l2_pool: {kernel: 2, stride: 2}
- conv: {maps: 16, kernel: 5, bias: false}
- l2_pool: {kernel: 2, stride: 2}
- linear: {outputs: 40, bias: false, activation: tanh}
- linear: {outputs: 10, bias: false, activation: logistic}
"""
SHAPES = {
    "layer0.weight": (8, 1, 5, 5),
    "layer2.weight": (16, 8, 5, 5),
    "layer4.weight": (40, 16, 4, 4),
    "layer5.weight": (10, 40),
}


def initial_weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.rand(shape, generator=generator) * 0.2 - 0.1 for name, shape in SHAPES.items()}


def nudged_by_one_ulp(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    towards = {name: torch.randn(w.shape, generator=generator) for name, w in weights.items()}
    return {name: torch.nextafter(w, towards[name]) for name, w in weights.items()}


def train(folder: Path, layers: str, weights: dict[str, torch.Tensor], ranks: int, dtype: str = "float32") -> Path:
    """Trains two epochs of 16 batches of digits, starting with the given weights."""
    folder.mkdir()
    file = folder / "experiment.yaml"
    file.write_text(
        f"dtype: {dtype}\ndata: {{set: mnist, sample: 0.4, shuffle: true}}\nsplit: tiles\nevaluate: false\nmodel:\n"
        "  epochs: 2\n  batch_size: 100\n  cost: cross_entropy\n  optimizer: {type: sgd, rate: 0.05}\n"
        "  layers:\n" + "".join(f"    {line}\n" for line in layers.strip().splitlines())
    )
    state = {name: w.to(getattr(torch, dtype)) for name, w in weights.items()}
    checkpoint.save(state, folder / "run/checkpoints/step-00000000")
    done = weft("train", "-n", str(ranks), file, "--out", folder / "run", "--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "run"


def largest_difference(ours: dict[int, float], theirs: dict[int, float]) -> float:
    assert ours.keys() == theirs.keys() and len(ours) > 1
    return max(abs(ours[step] - theirs[step]) / abs(theirs[step]) for step in ours)


def test_smooth_networks_agree_in_every_batch(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as jobs:
        one, four = jobs.map(lambda ranks: train(tmp_path / str(ranks), SMOOTH, initial_weights(), ranks), [1, 4])
    assert largest_difference(curve(four), curve(one)) < 1e-4
    assert largest_difference(curve(four, "train/epoch cost"), curve(one, "train/epoch cost")) < 1e-5


def test_tiles_with_max_pooling_differ_only_by_rounding(tmp_path: Path) -> None:
    weights = initial_weights()
    jobs: dict[str, tuple[dict[str, torch.Tensor], int, str]] = {
        "truth": (weights, 1, "float64"),
        "double": (weights, 4, "float64"),
        "one": (weights, 1, "float32"),
        "four": (weights, 4, "float32"),
        "moved": (nudged_by_one_ulp(weights), 1, "float32"),
    }
    with ThreadPoolExecutor() as threads:
        runs = threads.map(lambda name: train(tmp_path / name, KINKS, *jobs[name]), jobs)
    truth_run, double_run, one, four, moved = runs
    truth = curve(truth_run)
    assert curve(double_run) == pytest.approx(truth, rel=1e-12)
    far_one, far_four, far_moved = (largest_difference(curve(run), truth) for run in [one, four, moved])
    print(f"distance from float64: 1 rank {far_one:.1e}, 4 ranks {far_four:.1e}, 1 rank nudged {far_moved:.1e}")
    # Tiles are as accurate as one rank: the difference is rounding, not arithmetic.
    assert far_four < 5 * max(far_one, far_moved)
    # Epoch costs appear in tables and reports. A bound of 1e-4 does not always hold; see docs/experiments.md.
    assert largest_difference(curve(four, "train/epoch cost"), curve(one, "train/epoch cost")) < 1e-3
