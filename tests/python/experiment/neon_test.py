"""Tests that each neon file gives the same curve on 1, 4 and 16 ranks.

By default, the tests train on the sample that `make env` installs, and on synthetic images instead of CIFAR-10. If
WEFT_WHOLE_DATA names a folder with the complete sets (`make test-experiments`), the tests also compare the errors with
the reference and train on all of MNIST.
"""

from __future__ import annotations

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from experiment.weft_command import command, curve, environment
from weft.tools import compare

EXAMPLES = Path(__file__).parents[3] / "examples" / "experiments"
WHOLE = os.environ.get("WEFT_WHOLE_DATA", "")
HOURS = 3600.0

# Rank counts, and bounds of the test error with a tenth of the complete set.
FILES = {
    "mnist_distarray_convnet": ([1, 4], 0.15, 0.18),
    "mnist_halopar_convnet": ([1, 4], 0.05, 0.10),
    "mnist_numpy_convnet": ([1], 0.15, 0.18),
    "mnist_distarray_gb": ([1, 4, 16], 0.0, 0.12),
    "mnist_halopar_gb": ([1, 4], 0.0, 0.12),
    "mnist_numpy_gb": ([1], 0.0, 0.12),
    "cifar10_distarray_gb": ([1, 4, 16], 0.0, 0.85),
    "mnist_distarray_mlp": ([1, 4], 0.0, 0.15),
    "mnist_vecpar_mlp": ([1, 4], 0.0, 0.12),
    "mnist_datapar_mlp": ([1, 4], 0.0, 0.12),
    "mnist_numpy_mlp": ([1], 0.0, 0.15),
    "toy_images_vecpar_mlp": ([1, 4], 0.0, 0.2),
}
# Settings for the sample: sixteen ranks on two cores are slow.
SHORTER = {
    "gb": ["datasets[0].num_test_sample=100", "model.num_pretrain_epochs=1", "model.num_epochs=2"],
    "convnet": ["model.num_epochs=1"],
    "mlp": ["model.num_epochs=3"],
}
# Both compute hundreds of further passes, so one file of each kind tests them.
EXTRAS = {"mnist_distarray_gb": ["model.spot_check=true"], "mnist_halopar_gb": ["model.visualize=true"]}
ON_ALL_OF_MNIST = "mnist_whole_convnet"


def is_neon_file(file: Path) -> bool:
    return "\n!obj:neon." in file.read_text()


def write_synthetic_cifar(folder: Path) -> None:
    """Writes a label and 3 x 32 x 32 bytes per image, with classes of different brightness."""
    folder.mkdir(parents=True)
    dice = np.random.default_rng(0)
    for name, count in [("data_batch_1", 2000), ("test_batch", 100)]:
        labels = dice.integers(0, 10, (count, 1), dtype=np.uint8)
        pixels = dice.integers(0, 128, (count, 3072), dtype=np.uint8) + 12 * labels
        (folder / f"{name}.bin").write_bytes(np.concatenate([labels, pixels], axis=1).astype(np.uint8).tobytes())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a home folder, since neon files store data and caches in ~/data."""
    folder = tmp_path_factory.mktemp("home")
    if not WHOLE:
        write_synthetic_cifar(folder / "data" / "CIFAR10")
    return folder


def train(home: Path, run: Path, ranks: int, file: str) -> Path:
    surroundings = {**environment(), "HOME": str(home), "WEFT_DATA": WHOLE}
    arguments = command("train", "-n", str(ranks), EXAMPLES / f"{file}.yaml", "--out", run)
    shorter = [*SHORTER[file.rsplit("_", 1)[1]], *EXTRAS.get(file, [])]
    for setting in [] if WHOLE else shorter:
        arguments += ["--set", setting]
    done = subprocess.run(arguments, env=surroundings, capture_output=True, text=True, timeout=2 * HOURS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return run


def names_of_curves(run: Path) -> set[str]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {line["name"] for line in lines if line["name"].endswith("cost")}


def final_error(run: Path) -> float:
    return list(curve(run, "test/error").values())[-1]


def test_covers_every_neon_file() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.yaml") if is_neon_file(file)} == {*FILES, ON_ALL_OF_MNIST}


@pytest.mark.parametrize("file", FILES)
def test_curve_does_not_depend_on_the_rank_count(home: Path, tmp_path: Path, file: str) -> None:
    ranks, least, most = FILES[file]
    if not WHOLE and file != "mnist_distarray_gb":
        ranks = [n for n in ranks if n < 16]
    with ThreadPoolExecutor(1 if WHOLE else len(ranks)) as threads:
        first, *others = threads.map(lambda n: train(home, tmp_path / str(n), n, file), ranks)
    names = names_of_curves(first)
    assert {"train/cost", "train/epoch cost"} <= names
    assert any(name.startswith("pretrain") for name in names) == file.endswith("gb")
    for run in others:
        assert names_of_curves(run) == names
        for name in names:
            assert curve(run, name) == pytest.approx(curve(first, name), rel=1e-4, abs=0), (run.name, name)
        assert final_error(run) == final_error(first)
        assert compare.main([str(first), str(run), "--tolerance", "1e-4"]) == 0
    print(f"{file}: {100 * final_error(first):.2f}% on {ranks} ranks")
    if WHOLE:
        assert least <= final_error(first) <= most


@pytest.mark.skipif(not WHOLE, reason="needs the complete MNIST: make test-experiments")
def test_error_bounds_hold_on_all_of_mnist(home: Path, tmp_path: Path) -> None:
    run = train(home, tmp_path / "convnet", 2, ON_ALL_OF_MNIST)
    tuned = train(home, tmp_path / "tuned", 2, "mnist_tuned")
    print(f"convnet {100 * final_error(run):.2f}%, tuned {100 * final_error(tuned):.2f}%")
    assert final_error(run) <= 0.045
    assert final_error(tuned) <= 0.01
