"""Tests the folder of a run with all features: metrics, run.json, pictures of pre-training."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from experiment import weft_command
from experiment.weft_command import command, environment, weft
from weft.tools import report

from weft import checkpoint

FILTERS = """
seed: 1
dtype: float64
data: {set: blobs, images: 60, shape: [12, 11], classes: 3}
split: tiles
model:
  epochs: 2
  batch_size: 10
  cost: cross_entropy
  metrics: [top2, auc]
  optimizer: {type: sgd, rate: 0.05}
  pretrain: {epochs: 1, spot_check: true, visualize: true}
  layers:
    - local_filter: {name: filter, maps: 3, kernel: 4, sparsity: 0.1, pretrain_rate: 0.02}
    - l2_pool: 2
    - contrast_norm: 3
    - residual: [conv: {maps: 3, kernel: 3, padding: 1, activation: tanh}]
    - linear: {outputs: 3, activation: logistic}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "filters.yaml").write_text(FILTERS)
    done = weft("train", "-n", "2", folder / "filters.yaml", "--set", "model.epochs=3", "--out", folder / "run")
    assert done.returncode == 0, done.stderr
    return folder / "run", done.stdout


def test_run_json_describes_the_environment(finished: tuple[Path, str]) -> None:
    run, _ = finished
    facts = json.loads((run / "run.json").read_text())
    expected = {"dtype": "float64", "ranks": "2", "split": "2 x 1 tiles", "seed": "1", "set": "model.epochs=3"}
    assert expected.items() <= facts.items()
    assert facts["data"] == "blobs, synthetic"
    assert facts["torch"] == torch.__version__.split("+")[0]
    assert facts["weft"] and facts["MPI"] and facts["file"].endswith("filters.yaml")
    report.write(run)
    page = (run / "report.html").read_text()
    assert "blobs, synthetic" in page and facts["MPI"] in page


def test_table_and_files_contain_the_metrics(finished: tuple[Path, str]) -> None:
    run, printed = finished
    head = next(line for line in printed.splitlines() if line.startswith("stage"))
    assert "test top2_error" in head and "test auc" in head
    errors, top, area = (weft_command.curve(run, f"test/{name}") for name in ("error", "top2_error", "auc"))
    assert len(errors) == len(top) == len(area) == 3
    assert all(top[step] <= errors[step] for step in errors)
    assert all(0 <= value <= 1 for value in area.values())
    assert list(weft_command.curve(run, "final/test_auc").values()) == [area[max(area)]]


def test_reconstructions_show_the_end_of_pretraining(finished: tuple[Path, str]) -> None:
    """Training changes the filters but not the decoders, so later reconstructions would not match."""
    run, printed = finished
    drawn = json.loads((run / "pictures/reconstructions-layer0.json").read_text())
    assert "after pre-training" in drawn["title"]
    lines = printed.splitlines()
    units = [i for i, line in enumerate(lines) if line.startswith("pretrained, class")]
    trained = next(i for i, line in enumerate(lines) if line.startswith("train "))
    assert len(units) == 3 and max(units) < trained
    assert list(weft_command.curve(run, "pretrained/test_auc")) == [6]
    inputs = [torch.tensor(image["pixels"], dtype=torch.float64).view(12, 11) for image in drawn["images"]]
    expected = reconstruction(inputs[0], *after_pretraining(run))
    torch.testing.assert_close(inputs[1], expected, rtol=0, atol=1e-10)


def after_pretraining(run: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the weights of the same run at the end of pre-training."""
    other = run.with_name("pretrained")
    done = weft("train", run.with_name("filters.yaml"), "--set", "model.epochs=0", "--out", other)
    assert done.returncode == 0, done.stderr
    state = checkpoint.load(checkpoint.latest(other))
    return state["filter.weight"], state["filter.decoder"]


def reconstruction(image: torch.Tensor, encoder: torch.Tensor, decoder: torch.Tensor) -> torch.Tensor:
    patches = torch.nn.functional.unfold(image[None, None], 4)[0]  # [16, places]
    values = torch.einsum("mpt,tp->mp", encoder.reshape(3, -1, 16), patches)
    back = torch.einsum("mpt,mp->tp", decoder.reshape(3, -1, 16), values)
    return torch.nn.functional.fold(back[None], (12, 11), 4)[0, 0]


LARGE_ACTIVATIONS = """
data: {set: blobs, images: 64, shape: [64, 64], classes: 3}
model:
  batch_size: 16
  layers:
    - conv: {maps: 32, kernel: 3, padding: 1, activation: relu}
    - max_pool: 8
    - linear: 3
"""
PAGES_OF_AN_ACTIVATION = 16 * 32 * 64 * 64 * 4 // 4096


def page_faults(file: Path, epochs: int) -> int:
    """Returns the number of pages that the system provided to a run."""
    arguments = command("train", file, "--set", f"model.epochs={epochs}", "--set", "evaluate=false")
    run = subprocess.Popen(
        [*arguments, "--out", file.with_suffix(f".{epochs}")], env=environment(), stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(run.pid, 0)
    run.returncode = os.waitstatus_to_exitcode(status)
    assert run.returncode == 0
    return usage.ru_minflt


def test_steps_reuse_the_memory_of_earlier_steps(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    file.write_text(LARGE_ACTIVATIONS)
    steps = 4 * (4 - 2)
    # Without a pool, each step gets new pages for two tensors of this size.
    assert page_faults(file, 4) - page_faults(file, 2) < steps * PAGES_OF_AN_ACTIVATION / 2
