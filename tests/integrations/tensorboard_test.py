"""TensorBoard reads the curves of jobs over weft."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from integrations.examples import run
from jobs import outside_of_any_job
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from weft.tools._run import Run

ROOT = Path(__file__).resolve().parents[2]


def curves(folder: Path) -> dict[str, list[float]]:
    events = EventAccumulator(str(folder)).Reload()
    return {tag: [event.value for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_two_ranks_write_the_curve_of_one_process(tmp_path: Path) -> None:
    output = run("tensorboard_curves", 2, str(tmp_path / "two"))
    run("tensorboard_curves", 1, str(tmp_path / "one"))
    two, one = curves(tmp_path / "two")["loss"], curves(tmp_path / "one")["loss"]
    assert len(two) == 10 and two[-1] < two[0] / 2
    assert two == pytest.approx(one, rel=1e-5)
    assert output[1].loss == pytest.approx(two[-1], abs=2e-6)


def test_tensorboard_reads_the_events_of_weft_train(tmp_path: Path) -> None:
    experiment = ROOT / "examples" / "experiments" / "mnist_tuned.yaml"
    command = [str(ROOT / ".venv/bin/weft"), "train", "-n", "2", str(experiment), "--out", str(tmp_path / "run")]
    job = subprocess.run(
        [*command, "--set", "model.epochs=2"],
        env={key: value for key, value in outside_of_any_job().items() if key != "WEFT_DATA"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert job.returncode == 0, job.stdout + job.stderr
    written: dict[str, list[float]] = {}
    for scalar in Run(tmp_path / "run").scalars:
        written.setdefault(scalar.name, []).append(scalar.value)
    read = curves(tmp_path / "run")
    assert written and read.keys() == written.keys()
    for name, values in written.items():
        assert read[name] == pytest.approx(values, rel=1e-6), name  # TensorBoard stores float32
