"""The examples, in Python and C++, give the results of numpy and plain torch on any number of ranks."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import time
import wave
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from jobs import outside_of_any_job
from torch import nn

import weft
import weft.data

ROOT = Path(__file__).resolve().parents[3]
LAUNCHER = str(ROOT / "scripts" / "mpirun")
BUILT = Path(weft.library_path).parent.parent / "examples"
LANGUAGES = ["cpp", "python"]
SHORT = ["--steps", "8", "--images", "300", "--epochs", "2"]


def run(
    name: str, language: str, ranks: int, *options: str, wrapper: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs an example on several ranks."""
    program = [sys.executable, str(ROOT / "examples" / "python" / f"{name}.py")]
    if language == "cpp":
        program = [str(BUILT / name)]
        if not (BUILT / name).exists():
            pytest.skip("this build has no C++ examples")
    command = [LAUNCHER, "-n", str(ranks), *([wrapper] if wrapper else []), *program, *options]
    variables = {**outside_of_any_job(), **environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(autouse=True)
def _the_sample_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_DATA", raising=False)


UNET_OPTIONS = {"python": ["--size", "32", "--steps", "4"], "cpp": ["32", "4"]}


def exact_fit() -> np.ndarray:
    """Returns the least squares solution for the points of both programs."""
    i = np.arange(10_000)
    x = i / 9_999 * 2 - 1
    y = 2 - 3 * x + 0.5 * x * x + 0.1 * np.sin(i * 12.9898)
    return np.linalg.lstsq(np.stack([np.ones_like(x), x, x * x], 1), y, rcond=None)[0]


@pytest.mark.parametrize("language", LANGUAGES)
def test_linear_regression_finds_the_exact_fit(language: str) -> None:
    with ThreadPoolExecutor() as threads:
        jobs = {ranks: threads.submit(run, "linear_regression", language, ranks) for ranks in (1, 2, 3)}
    for ranks, started in jobs.items():
        job = started.result()
        assert job.returncode == 0, job.stdout + job.stderr
        line = re.search(rf"{ranks} ranks: (\S+) (\S+) (\S+)", job.stdout)
        assert line, job.stdout
        assert np.allclose([float(number) for number in line.groups()], exact_fit(), atol=1e-6)


def epochs_of_mnist(language: str, ranks: int, *options: str) -> np.ndarray:
    """Returns loss and test accuracy of each epoch of a small run."""
    job = run("layer_parallel_mnist", language, ranks, *SHORT, *options)
    assert job.returncode == 0, job.stdout + job.stderr
    assert f"8 layers on {ranks} ranks, 300 images" in job.stdout
    epochs = re.findall(r"epoch \d+: loss (\S+), test accuracy (\S+), residuals .* \S+ \S+, \S+ s", job.stdout)
    assert len(epochs) == 2, job.stdout
    return np.array(epochs, dtype=float)


def plain_epochs_of_mnist() -> np.ndarray:
    """Returns the same for a loop over the layers and torch's backward in one process."""
    train, test = weft.data.mnist()
    torch.manual_seed(1)
    opening = nn.Conv2d(1, 4, 3, padding=1)
    layers = [nn.Conv2d(4, 4, 3, padding=1) for _ in range(8)]
    closing = nn.Linear(4 * 28 * 28, 10)
    parameters = [parameter for module in (opening, *layers, closing) for parameter in module.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)

    def scores(images: torch.Tensor) -> torch.Tensor:
        x = opening(images.float() / 255).relu()
        for layer in layers:
            x = x + layer(x).relu() / 8
        return closing(x.flatten(1))

    numbers = torch.linspace(0, 3999, 300).long()
    epochs = []
    for epoch in range(2):
        losses = []
        for batch in weft.data.shuffled_batches(300, epoch, size=50, seed=1):
            optimizer.zero_grad()
            loss = F.cross_entropy(scores(train.images[numbers[batch]]), train.labels[numbers[batch]])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            right = (scores(test.images).argmax(1) == test.labels).float().mean().item()
        epochs.append((np.mean(losses), right))
    return np.array(epochs)


@pytest.mark.parametrize("language", LANGUAGES)
def test_layer_parallel_mnist_is_the_same_on_any_number_of_ranks(language: str) -> None:
    with ThreadPoolExecutor() as threads:
        one, two = threads.map(lambda ranks: epochs_of_mnist(language, ranks), (1, 2))
    assert one[1, 0] < one[0, 0] - 0.05, f"the loss did not fall: {one}"
    np.testing.assert_allclose(two[:, 0], one[:, 0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("language", LANGUAGES)
def test_layer_parallel_mnist_equals_a_plain_loop_after_convergence(language: str) -> None:
    epochs = epochs_of_mnist(language, 2, "--iterations", "6")
    plain = plain_epochs_of_mnist()
    np.testing.assert_allclose(epochs[:, 0], plain[:, 0], rtol=0, atol=1e-4)
    np.testing.assert_allclose(epochs[:, 1], plain[:, 1], rtol=0, atol=0.004)  # one or two images are borderline


@pytest.mark.parametrize("language", LANGUAGES)
def test_layer_parallel_mnist_reports_missing_images(language: str, tmp_path: Path) -> None:
    job = run("layer_parallel_mnist", language, 2, WEFT_DATA=str(tmp_path))
    assert job.returncode != 0
    assert "WEFT_DATA" in job.stderr and str(tmp_path) in job.stderr


@pytest.mark.parametrize("language", LANGUAGES)
def test_layer_parallel_mnist_ends_if_one_rank_has_no_images(language: str, tmp_path: Path) -> None:
    """The other ranks must not wait for it."""
    wrapper = tmp_path / "second_rank_without_images"
    wrapper.write_text(f"""#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK$PMI_RANK" = 1 ] && export WEFT_DATA={tmp_path}
exec "$@"
""")
    wrapper.chmod(0o755)
    start = time.monotonic()
    job = run("layer_parallel_mnist", language, 2, *SHORT, wrapper=str(wrapper))
    assert job.returncode != 0
    assert "WEFT_DATA" in job.stderr and str(tmp_path) in job.stderr
    assert time.monotonic() - start < 100  # weft's timeout is 300 s


def test_layer_parallel_mnist_rejects_invalid_options() -> None:
    wrong = (["--steps"], ["--steps", "none"], ["--depth", "3"], ["--batch", "0"])
    with ThreadPoolExecutor() as threads:
        jobs = list(threads.map(lambda options: run("layer_parallel_mnist", "cpp", 1, *options), wrong))
    for options, job in zip(wrong, jobs, strict=True):
        assert job.returncode == 1
        assert "--iterations" in job.stderr and options[0] in job.stderr, job.stderr


def unet(language: str, ranks: int, *arguments: str) -> float:
    """Returns the loss of the last step."""
    job = run("unet_segmentation", language, ranks, *UNET_OPTIONS[language], *arguments)
    assert job.returncode == 0, job.stdout + job.stderr
    line = re.search(rf"{ranks} ranks: final loss (\S+),", job.stdout)
    assert line, job.stdout
    return float(line.group(1))


@pytest.mark.parametrize("language", LANGUAGES)
def test_unet_trains_the_same_on_any_number_of_ranks_and_writes_pictures(language: str, tmp_path: Path) -> None:
    output = [*(["--output"] if language == "python" else []), str(tmp_path)]
    with ThreadPoolExecutor() as threads:
        alone, together = threads.map(lambda ranks: unet(language, ranks, *(output if ranks == 2 else [])), (1, 2))
    assert together == pytest.approx(alone, abs=1e-4)
    for name in ("input", "truth", "prediction"):
        data = (tmp_path / f"{name}.png").read_bytes()
        assert data.startswith(b"\x89PNG\r\n\x1a\n") and struct.unpack(">II", data[16:24]) == (32, 32)
        crc = struct.unpack(">I", data[29:33])[0]
        assert crc == zlib.crc32(data[12:29])
        body = zlib.decompress(data[41 : 41 + struct.unpack(">I", data[33:37])[0]])
        assert len(body) == 32 * (1 + 3 * 32)


def write_tones(folder: Path) -> Path:
    """Writes recordings in the format of the Free Spoken Digit Dataset: a tone per digit, of different lengths."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    for digit in range(10):
        for index in range(9):  # 5 for testing
            samples = int(800 + 1600 * generator.random())
            tone = np.sin(2 * np.pi * (200 + 300 * digit) / 8000 * np.arange(samples))
            noisy = 8000 * (tone + 0.1 * generator.standard_normal(samples))
            with wave.open(str(folder / f"{digit}_someone_{index}.wav"), "wb") as file:
                file.setparams((1, 2, 8000, samples, "NONE", "not compressed"))
                file.writeframes(noisy.astype(np.int16).tobytes())
    return folder


def test_spoken_digits_train_the_same_with_every_solver(tmp_path: Path) -> None:
    recordings = str(write_tones(tmp_path / "recordings"))
    short = ["--epochs", "2", "--hidden", "8", "--bands", "12", "--frames", "30", "--batch", "8"]
    jobs = [
        ("python", 1, ["--solver", "serial"]),
        ("python", 2, ["--solver", "pipeline"]),
        ("python", 3, ["--solver", "newton"]),
        ("cpp", 1, []),
        ("cpp", 3, ["--chunks", "3"]),
    ]
    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(lambda job: run("spoken_digits", *job[:2], recordings, *short, *job[2]), jobs))
    found = []
    for job in done:
        assert job.returncode == 0, job.stdout + job.stderr
        epochs = re.findall(r"epoch \d: loss ([\d.]+), test accuracy ([\d.]+)", job.stdout)
        assert len(epochs) == 2, job.stdout
        found.append([float(number) for epoch in epochs for number in epoch])
    for numbers in found[1:]:
        assert numbers == pytest.approx(found[0], abs=5e-3)
    assert found[0][2] < found[0][0]


def test_spoken_digits_names_missing_recordings(tmp_path: Path) -> None:
    for language in LANGUAGES:
        job = run("spoken_digits", language, 1, str(tmp_path / "missing"))
        assert job.returncode != 0 and "missing" in job.stderr, job.stderr


def run_solvers(name: str, options: list[str], ranks: dict[str, int]) -> list[subprocess.CompletedProcess[str]]:
    """Runs an example with each solver on its number of ranks."""
    with ThreadPoolExecutor(2) as threads:
        jobs = [threads.submit(run, name, "python", n, *options, "--solver", solver) for solver, n in ranks.items()]
    return [job.result() for job in jobs]


def printed_losses(jobs: list[subprocess.CompletedProcess[str]], pattern: str, lines: int) -> list[list[float]]:
    """Returns the numbers that each job printed."""
    found = []
    for job in jobs:
        matches = re.findall(pattern, job.stdout)
        assert job.returncode == 0 and len(matches) == lines, job.stdout + job.stderr
        found.append([float(number) for match in matches for number in match])
    return found


def test_character_model_trains_the_same_with_every_solver() -> None:
    short = ["--batches", "4", "--steps", "65", "--width", "16", "--batch", "2"]
    done = run_solvers("character_model", short, {"serial": 1, "pipeline": 2, "newton": 3})
    serial, pipeline, newton = printed_losses(done, r"batch 4: loss ([\d.]+), test ([\d.]+) bits", 1)
    assert pipeline == pytest.approx(serial, abs=2e-3) and newton == pytest.approx(serial, abs=2e-3)


def test_character_gpt_trains_the_same_with_every_solver() -> None:
    short = ["--batches", "4", "--report", "2", "--blocks", "6", "--width", "8", "--heads", "2", "--context", "16"]
    done = run_solvers("character_gpt", short, {"serial": 1, "pipeline": 2, "mgrit": 3})
    serial, pipeline, mgrit = printed_losses(done, r"batch \d: loss ([\d.]+), test ([\d.]+)", 2)
    assert serial[2] < serial[0]
    assert pipeline == pytest.approx(serial, abs=2e-3) and mgrit == pytest.approx(serial, abs=2e-2)


def test_vit_mnist_trains_the_same_with_every_solver() -> None:
    short = ["--epochs", "2", "--blocks", "6", "--width", "8", "--heads", "2", "--images", "300", "--dropout", "0.1"]
    done = run_solvers("vit_mnist", short, {"serial": 1, "pipeline": 3, "mgrit": 2})
    serial, pipeline, mgrit = printed_losses(done, r"epoch \d: loss ([\d.]+), test accuracy ([\d.]+)", 2)
    assert serial[2] < serial[0]
    assert pipeline == pytest.approx(serial, abs=4e-3) and mgrit == pytest.approx(serial, abs=2e-2)


def test_nested_mnist_trains_the_same_on_any_number_of_ranks() -> None:
    short = ["--steps", "8", "--images", "300", "--epochs", "2", "1", "1"]
    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(lambda ranks: run("nested_mnist", "python", ranks, *short), (1, 2)))
    pattern = r"level \d, (\d+) layers, epoch \d: loss ([\d.]+), test accuracy ([\d.]+), (\d+) step evaluations"
    one, two = printed_losses(done, pattern, 4)
    assert one[::4] == [2, 2, 4, 8] and one[3::4] == [12, 24, 48, 96]
    assert one[13] < one[1]
    assert two == pytest.approx(one, abs=4e-3)


def test_nested_mnist_rejects_depths_that_cannot_be_halved() -> None:
    job = run("nested_mnist", "python", 1, "--steps", "6", "--epochs", "1", "1", "1")
    assert job.returncode != 0 and "--steps must be a multiple of 4" in job.stderr
