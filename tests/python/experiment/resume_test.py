"""Tests weft train --resume and the protection of run folders."""

from __future__ import annotations

import contextlib
import fcntl
import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from experiment.weft_command import checkpoint_steps, command, curve, environment, toy_file, weft, weft_together

from weft import checkpoint

FILTERS = """
seed: 3
data: {set: blobs, images: 40, shape: [10, 10], classes: 3}
model:
  epochs: 1
  batch_size: 8
  cost: cross_entropy
  optimizer: {type: sgd, rate: 0.05}
  pretrain: {epochs: 2}
  layers:
    - local_filter: {maps: 3, kernel: 3}
    - l2_pool: 2
    - linear: {outputs: 3, activation: logistic}
"""
STEPS_OF_AN_EPOCH = 5


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained")
    (folder / "filters.yaml").write_text(FILTERS)
    done = weft("train", folder / "filters.yaml", "--out", folder / "run")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(("ranks", "setting"), [("1", "model.pretrain.epochs=3"), ("2", "model.pretrain.epochs=0")])
def test_rejects_other_stages_and_keeps_the_folder(pretrained: Path, ranks: str, setting: str) -> None:
    run = pretrained / "run"
    before = contents(run)
    done = weft("train", "-n", ranks, pretrained / "filters.yaml", "--resume", "--out", run, "--set", setting)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.count("but the run started with 2 epochs of pre-training layer 0") == 1, done.stderr
    assert contents(run) == before


def test_more_epochs_continue_the_last_stage(pretrained: Path) -> None:
    done = weft(
        "train", pretrained / "filters.yaml", "--resume", "--out", pretrained / "run", "--set", "model.epochs=2"
    )
    assert done.returncode == 0, done.stderr
    assert checkpoint_steps(pretrained / "run")[-1] == 4 * STEPS_OF_AN_EPOCH
    assert sorted(curve(pretrained / "run")) == list(range(11, 21))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    done = weft("train", toy_file(folder), "--out", folder / "run", "--set", "model.epochs=1")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(
    ("ranks", "settings", "text"),
    [
        ("1", ["data.set=shapes"], "set is 'shapes', but the run started with 'blobs'"),
        ("2", ["data.sample=0.5", "data.images=480"], "sample is '0.5', but the run started with '1'"),
    ],
)
def test_rejects_other_data(finished: Path, ranks: str, settings: list[str], text: str) -> None:
    before = contents(finished / "run")
    options = [word for setting in settings for word in ("--set", setting)]
    done = weft("train", "-n", ranks, finished / "toy.yaml", "--resume", "--out", finished / "run", *options)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.count(f"cannot resume: the data {text}") == 1, done.stderr
    assert contents(finished / "run") == before


def test_an_edited_checkpoint_keeps_the_facts_of_its_run(finished: Path, tmp_path: Path) -> None:
    last = checkpoint.latest(finished / "run")
    again = checkpoint.save({}, tmp_path / "checkpoints" / last.name, like=last)
    ours, theirs = (json.loads((folder / "index.json").read_text()) for folder in [again, last])
    for name in ["stages", "data", "numbers"]:
        assert ours[name] == theirs[name]


def test_a_damaged_file_is_reported_once_with_its_rank(tmp_path: Path) -> None:
    arguments = ["train", "-n", "2", toy_file(tmp_path), "--out", tmp_path / "run", "--set", "model.epochs=1"]
    assert weft(*arguments).returncode == 0
    shard = checkpoint.latest(tmp_path / "run") / "shard-1-of-2.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    done = weft(*arguments, "--resume")
    assert done.returncode == 1, done.stdout
    assert done.stderr.startswith(
        f"weft: rank 1: cannot read safetensors file '{shard}': the file ends before the data"
    )
    assert done.stderr.count("weft: ") == 1, done.stderr
    assert done.stderr.endswith("remove the checkpoint's folder to resume from the one before it\n"), done.stderr


@pytest.mark.parametrize("ranks", ["1", "2"])
def test_does_not_overwrite_user_files(tmp_path: Path, ranks: str) -> None:
    (tmp_path / "config.yaml").write_text(toy_file(tmp_path).read_text())
    before = contents(tmp_path)
    done = weft("train", "-n", ranks, "config.yaml", "--out", ".", "--set", "model.epochs=1", cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.count("the run would overwrite ./config.yaml; choose another folder with --out") == 1, (
        done.stderr
    )
    assert contents(tmp_path) == before


@pytest.mark.parametrize("ranks", ["1", "2"])
def test_rejects_a_file_as_run_folder(tmp_path: Path, ranks: str) -> None:
    file = toy_file(tmp_path)
    texts = {
        file: f"{file} is a file, not a folder",
        file / "run": f"cannot create the run folder {file}/run: Not a directory",
    }
    jobs = weft_together(*(["train", "-n", ranks, file, "--out", out] for out in texts))
    for done, text in zip(jobs, texts.values(), strict=True):
        assert done.returncode == 2, done.stderr
        assert done.stderr.count(text) == 1, done.stderr


def test_one_job_at_a_time_uses_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["train", toy_file(tmp_path), "--out", out, "--resume", "--set"]
    first = subprocess.Popen(command(*arguments, "model.epochs=10000"), env=environment(), stdout=subprocess.DEVNULL)
    try:
        while not checkpoint_steps(out) and first.poll() is None:
            time.sleep(0.05)
        second = weft(*arguments, "model.epochs=1", "-n", "2")
        assert second.returncode == 2, second.stdout + second.stderr
        assert second.stderr.count(f"another weft train is using {out}") == 1, second.stderr
        assert first.poll() is None
    finally:
        first.send_signal(signal.SIGINT)
        assert first.wait(timeout=120) == 130
    assert max(curve(out)) == checkpoint_steps(out)[-1]
    assert weft(*arguments, "model.epochs=1").returncode == 0


def test_waits_for_the_lock_of_a_dying_job(tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    with (out / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        job = subprocess.Popen(
            command("train", toy_file(tmp_path), "--out", out, "--set", "model.epochs=1"),
            env=environment(),
            stdout=subprocess.DEVNULL,
        )
        while (out / "lock").resolve() not in _files_of(job.pid) and job.poll() is None:
            time.sleep(0.02)
        time.sleep(0.1)
        assert job.poll() is None
    assert job.wait(timeout=120) == 0


def _files_of(process: int) -> set[Path]:
    files = set()
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(OSError):
                files.add(link.readlink())
    return files
