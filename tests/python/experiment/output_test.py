"""Tests the output of the weft command: banner, progress, notes, and errors that launchers would bury."""

from __future__ import annotations

import fcntl
import json
import math
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from experiment.weft_command import command, curve, environment, toy_file, weft, weft_together

EXAMPLES = Path(__file__).parents[3] / "examples" / "experiments"


def run_info(run: Path) -> dict[str, str]:
    return json.loads((run / "run.json").read_text())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with runs of one epoch on 1 and 2 ranks, and their output."""
    folder = tmp_path_factory.mktemp("finished")
    train = ["train", toy_file(folder), "--set", "model.epochs=1"]
    jobs = weft_together(*([*train, "-n", ranks, "--out", folder / ranks] for ranks in ("1", "2")))
    for ranks, done in zip(("1", "2"), jobs, strict=True):
        assert done.returncode == 0, done.stderr
        (folder / f"{ranks}.txt").write_text(done.stdout)
    return folder


@pytest.mark.parametrize("ranks", ["1", "2"])
def test_prints_a_banner(finished: Path, ranks: str) -> None:
    run = finished / ranks
    first, second, *_ = (finished / f"{ranks}.txt").read_text().splitlines()
    assert first == "toy: 240 training and 60 test images, blobs, synthetic"
    shared = "1 rank with 1 thread" if ranks == "1" else "2 ranks with 1 thread each, split: 2 x 1 tiles"
    assert second == f"5,763 parameters, float32, seed 3; {shared}"
    facts = run_info(run)
    assert facts["ranks"] == ranks and facts["threads per rank"] == "1" and facts["parameters"] == "5763"


def threads_of(tmp_path: Path, name: str, *arguments: str, **variables: str) -> str:
    surroundings = {key: value for key, value in environment().items() if key != "OMP_NUM_THREADS"}
    run = tmp_path / name
    started = command("train", toy_file(tmp_path), "--set", "model.epochs=0", "--out", run, *arguments)
    done = subprocess.run(
        started, env={**surroundings, **variables}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return run_info(run)["threads per rank"]


def test_ranks_share_the_cores(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor() as jobs:
        one = jobs.submit(threads_of, tmp_path, "one")
        two = jobs.submit(threads_of, tmp_path, "two", "-n", "2")
        many = jobs.submit(threads_of, tmp_path, "many", "-n", str(cores + 1))
        chosen = jobs.submit(threads_of, tmp_path, "chosen", "-n", "2", "--threads", "3")
        variable = jobs.submit(threads_of, tmp_path, "variable", OMP_NUM_THREADS="5")
    assert one.result() == str(cores)
    assert two.result() == str(max(1, cores // 2))
    assert many.result() == "1"
    assert chosen.result() == "3"
    assert variable.result() == "5"


def test_records_speed_memory_and_learning_rate(tmp_path: Path) -> None:
    run = tmp_path / "run"
    schedule = "model.optimizer={type: adam, rate: 0.004, schedule: {type: step, epochs: [1], gamma: 0.5}}"
    done = weft("train", "-n", "2", toy_file(tmp_path), "--set", "model.epochs=2", "--set", schedule, "--out", run)
    assert done.returncode == 0, done.stderr
    assert curve(run, "train/learning rate") == {30: 0.004, 60: 0.002}
    for name in ("speed/images per second", "memory/MiB of the largest rank", "speed/load imbalance"):
        assert len(curve(run, name)) == 2 and min(curve(run, name).values()) >= 1, name
    trace = json.loads((run / "trace.json").read_text())["traceEvents"]
    for rank in (0, 1):
        names = {event["name"] for event in trace if event["ph"] == "X" and event["pid"] == rank}
        parts = {"forward", "backward", "update", "evaluate", "checkpoint"}
        assert {f"experiment/{part}" for part in parts} <= names, names
        assert "all_reduce" in names and names & {"halo_exchange", "tile_convolution"}, names


def test_records_residuals_of_the_multigrid_solver(tmp_path: Path) -> None:
    stack = "{residual_stack: {depth: 8, name: stack, layer_parallel: {levels: 2}}}"
    settings = [
        "split=none",
        "model.epochs=1",
        f"model.layers=[{{conv: {{maps: 2, kernel: 3}}}}, {stack}, {{linear: 3}}]",
    ]
    options = [word for setting in settings for word in ("--set", setting)]
    done = weft("train", "-n", "2", toy_file(tmp_path), *options, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    for direction in ("forward", "backward"):
        (residual,) = curve(tmp_path / "run", f"stack {direction}/residual").values()
        assert 0 < residual < math.inf


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, columns: int, *arguments: str | Path) -> None:
        self.process, self.descriptor = pty.fork()
        if self.process == 0:
            surroundings = environment()
            for name in ("COLUMNS", "WEFT_PROGRESS"):
                surroundings.pop(name, None)
            started = command(*arguments)
            time.sleep(0.2)  # until the size is set
            os.execve(started[0], started, surroundings)
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def chunks(self, seconds: float = 120) -> list[str]:
        """Returns the output as it arrived, until the command ends."""
        found = []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ready, _, _ = select.select([self.descriptor], [], [], 1)
            try:
                data = os.read(self.descriptor, 1 << 16) if ready else None
            except OSError:  # the other end is closed
                break
            if data is not None:
                found.append(data.decode())
        os.waitpid(self.process, 0)
        os.close(self.descriptor)
        return found


@pytest.mark.parametrize("ranks", ["1", "2"])
@pytest.mark.parametrize("columns", [50, 100])
def test_shows_a_bar_during_the_epoch(tmp_path: Path, ranks: str, columns: int) -> None:
    # One rank needs more checkpoints to make the epoch as long as several drawings.
    settings = ["model.epochs=1", "data.images=2400", f"checkpoint_every={7 if ranks == '1' else 20}"]
    options = [word for setting in settings for word in ("--set", setting)]
    chunks = Terminal(columns, "train", "-n", ranks, toy_file(tmp_path), *options, "--out", tmp_path / "run").chunks()
    bars = [re.findall(r"train 1/1 [^\r\n]*", chunk) for chunk in chunks]
    assert sum(map(bool, bars)) >= 3, chunks  # several drawings arrived before the end of the epoch
    drawn = [bar for found in bars for bar in found]
    assert all(len(bar) < columns for bar in drawn)
    assert any(re.fullmatch(r"train 1/1 \[[#.]+\] \d+/300 \d+:\d\d left  cost [\d.e-]+", bar) for bar in drawn), drawn
    assert "test error:" in "".join(chunks)


@pytest.mark.parametrize("ranks", ["1", "2"])
def test_prints_lines_into_a_pipe(finished: Path, ranks: str) -> None:
    printed = (finished / f"{ranks}.txt").read_text()
    assert len(re.findall(r"^train 1/1  \d+/30  cost ", printed, re.MULTILINE)) == 10


def test_launchers_do_not_bury_errors(tmp_path: Path) -> None:
    arguments = command("train", "-n", "2", EXAMPLES / "cifar10_distarray_gb.yaml", "--out", tmp_path / "run")
    surroundings = {**environment(), "HOME": str(tmp_path)}
    done = subprocess.run(arguments, env=surroundings, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "prterun" not in done.stderr and "MPI_ABORT" not in done.stderr and "----" not in done.stderr
    assert done.stderr.rstrip().endswith("or set WEFT_DATA to its parent folder"), done.stderr


def test_keeps_the_launchers_report_of_a_killed_rank(tmp_path: Path) -> None:
    launcher = tmp_path / "mpirun"
    rule = "-" * 74
    launcher.write_text(
        f"#!/bin/sh\ncat >&2 <<END\nweft: rank 1: our message\n{rule}\nMPI_ABORT was invoked on rank 1\n{rule}\n"
        f"{rule}\nprterun noticed that process rank 1 exited on signal 9 (Killed).\n{rule}\nlast\nEND\n"
        "printf '\\0' >&2\nexit 7\n"
    )
    launcher.chmod(0o755)
    started = command("train", "-n", "2", toy_file(tmp_path))
    surroundings = {**environment(), "WEFT_MPIRUN": str(launcher)}
    done = subprocess.run(started, env=surroundings, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 7
    killed = f"{rule}\nprterun noticed that process rank 1 exited on signal 9 (Killed).\n{rule}\n"
    assert done.stderr == f"weft: rank 1: our message\n{killed}last\n"


@pytest.mark.parametrize("file", ["mnist_convnet.yaml", "mnist_distarray_convnet.yaml"])
def test_announces_the_sample_of_mnist(tmp_path: Path, file: str) -> None:
    done = weft("train", EXAMPLES / file, "--set", f"model.{'num_' if 'dist' in file else ''}epochs=0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("using a small sample of MNIST") == 1, done.stdout


def test_prints_notes_about_keys_without_effect(tmp_path: Path) -> None:
    file = EXAMPLES / "toy_images_vecpar_mlp.yaml"
    arguments = ["--set", "backend.seterr_handling={all: warn}"]
    note = "note: 'seterr_handling' of a backend has no effect in weft"
    train = ["train", "-n", "2", file, *arguments, "--set", "model.num_epochs=0"]
    checked, done = weft_together(["check", file, *arguments], train, cwd=tmp_path)
    assert note in checked.stderr
    assert done.returncode == 0 and done.stdout.count(note) == 1, done.stdout + done.stderr


def test_rejects_a_batch_larger_than_the_data_set(tmp_path: Path) -> None:
    train = ["train", toy_file(tmp_path), "--set", "model.batch_size=241", "-n"]
    for done in weft_together([*train, "1"], [*train, "2"], cwd=tmp_path):
        assert done.returncode == 2
        assert done.stderr.count("the batch size is 241, but there are only 240 training images") == 1, done.stderr
    assert not (tmp_path / "runs").exists()


def test_rejects_an_empty_folder_name_and_prints_the_version(tmp_path: Path) -> None:
    done, version = weft_together(["train", toy_file(tmp_path), "--out", ""], ["--version"], cwd=tmp_path)
    assert done.returncode == 2 and "--out" in done.stderr, done.stderr
    assert version.returncode == 0 and re.fullmatch(r"weft \d+\.\d+\.\d+\n", version.stdout)


@pytest.mark.parametrize("ranks", ["1", "2"])
def test_a_trace_that_cannot_be_written_does_not_hide_the_results(finished: Path, tmp_path: Path, ranks: str) -> None:
    run = shutil.copytree(finished / "1", tmp_path / "run")
    (run / "trace.json").unlink()
    (run / "trace.json").mkdir()
    (run / "trace.json" / "in the way").write_text("")
    arguments = ["train", "-n", ranks, toy_file(tmp_path), "--set", "model.epochs=2", "--resume", "--out", run]
    done = weft(*arguments)
    assert done.returncode == 0, done.stderr
    assert "test error:" in done.stdout and "the trace was not written: " in done.stdout


@pytest.mark.parametrize("ranks", ["1", "2"])
def test_a_damaged_checkpoint_is_not_resumed(finished: Path, tmp_path: Path, ranks: str) -> None:
    run = shutil.copytree(finished / "1", tmp_path / "run")
    last = max(run.glob("checkpoints/step-*")) / "shard-0-of-1.safetensors"
    content = bytearray(last.read_bytes())
    content[-1] ^= 0x40
    last.write_bytes(bytes(content))
    arguments = ["train", "-n", ranks, toy_file(tmp_path), "--set", "model.epochs=2", "--resume", "--out", run]
    done = weft(*arguments)
    assert done.returncode == 1
    assert done.stderr.count(f"checkpoint file {last} is damaged: the checksum of 'layer") == 1, done.stderr
    last.parent.rename(tmp_path / "damaged")
    assert weft(*arguments).returncode == 0  # from the checkpoint before it
