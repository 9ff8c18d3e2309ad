"""What single precision does to the curve of a network with kinks, on one rank and in tiles on four.

Batches of a network with maxima differ by more than 1e-4 between any two ways of adding up a sum, also on one rank;
most likely because a maximum within rounding of its kink sends the gradient another way (docs/experiments.md has the
figures). Networks without kinks do not do that, and double precision is the same to its last digits.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from weft_jobs import curve, weft

from weft import checkpoint

KINKS = """
- conv: {maps: 20, kernel: 5, bias: false}
- max_pool: 2
- conv: {maps: 50, kernel: 5, bias: false}
- max_pool: 2
- linear: {outputs: 100, bias: false, activation: relu}
- linear: {outputs: 10, bias: false, activation: logistic}
"""
SMOOTH = """
- conv: {maps: 20, kernel: 5, bias: false}
- l2_pool: {kernel: 2, stride: 2}
- conv: {maps: 50, kernel: 5, bias: false}
- l2_pool: {kernel: 2, stride: 2}
- linear: {outputs: 100, bias: false, activation: tanh}
- linear: {outputs: 10, bias: false, activation: logistic}
"""
SHAPES = {
    "layer0.weight": (20, 1, 5, 5),
    "layer2.weight": (50, 20, 5, 5),
    "layer4.weight": (100, 50, 4, 4),
    "layer5.weight": (10, 100),
}


def initial_weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.rand(shape, generator=generator) * 0.2 - 0.1 for name, shape in SHAPES.items()}


def one_ulp_away(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    towards = {name: torch.randn(w.shape, generator=generator) for name, w in weights.items()}
    return {name: torch.nextafter(w, towards[name]) for name, w in weights.items()}


def train(folder: Path, layers: str, weights: dict[str, torch.Tensor], ranks: int, dtype: str = "float32") -> Path:
    """Two epochs of 16 batches of real digits, beginning with the given weights."""
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


def largest(ours: dict[int, float], theirs: dict[int, float]) -> float:
    assert ours.keys() == theirs.keys() and len(ours) > 1
    return max(abs(ours[step] - theirs[step]) / abs(theirs[step]) for step in ours)


def test_without_kinks_every_batch_is_the_same(tmp_path: Path) -> None:
    one, four = (train(tmp_path / str(ranks), SMOOTH, initial_weights(), ranks) for ranks in [1, 4])
    assert largest(curve(four), curve(one)) < 1e-4
    assert largest(curve(four, "train/epoch cost"), curve(one, "train/epoch cost")) < 1e-5


def test_kinks_and_rounding(tmp_path: Path) -> None:
    weights = initial_weights()
    truth = curve(train(tmp_path / "truth", KINKS, weights, 1, "float64"))
    double = curve(train(tmp_path / "double", KINKS, weights, 4, "float64"))
    assert double == pytest.approx(truth, rel=1e-12)
    one, four = (train(tmp_path / str(ranks), KINKS, weights, ranks) for ranks in [1, 4])
    moved = train(tmp_path / "moved", KINKS, one_ulp_away(weights), 1)
    far_one, far_four, far_moved = (largest(curve(run), truth) for run in [one, four, moved])
    print(f"from double precision: 1 rank {far_one:.1e}, 4 ranks {far_four:.1e}, 1 rank and an ulp {far_moved:.1e}")
    # Tiles are as far from the truth as one rank is: what differs is rounding, not arithmetic.
    assert far_four < 5 * max(far_one, far_moved)
    # The curve's points, as the table and the report have them. 1e-4 does not always hold: see docs/experiments.md.
    assert largest(curve(four, "train/epoch cost"), curve(one, "train/epoch cost")) < 1e-3
