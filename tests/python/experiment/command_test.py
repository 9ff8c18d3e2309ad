"""Tests the weft command: output, exit status and files."""

from __future__ import annotations

import math
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from event_files import RESTART, scalars
from experiment.weft_command import STEPS, checkpoint_steps, command, curve, environment, toy_file, weft, weft_together
from jobs import LAUNCHER

from weft import checkpoint

EXAMPLES = Path(__file__).parents[3] / "examples" / "experiments"


@pytest.mark.parametrize("ranks", [1, 4])
def test_check_shows_the_part_of_a_rank(ranks: int) -> None:
    done = weft("check", EXAMPLES / "mnist_distarray_convnet.yaml", "-n", str(ranks))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    conv = next(line for line in lines if line.startswith("conv1"))
    assert ("24 x 24" if ranks == 1 else "12 x 12") in conv.split("maps of 24 x 24")[1]
    assert lines[-1] == f"{20 * 25 + 50 * 20 * 25 + 500 * 800 + 10 * 500} parameters"


def test_reports_mistakes_once_with_locations(tmp_path: Path) -> None:
    file = toy_file(tmp_path)
    file.write_text(file.read_text().replace("epochs", "epohcs"))
    done, checked = weft_together(["train", "-n", "2", file], ["check", file], cwd=tmp_path)
    assert done.returncode != 0
    assert done.stderr.count(f"{file}:7:3: unknown key 'epohcs' in model; did you mean 'epochs'?") == 1
    assert not (tmp_path / "runs").exists()
    assert checked.returncode == 2


def test_rejects_impossible_rank_counts(tmp_path: Path) -> None:
    done = weft("train", "-n", "3", toy_file(tmp_path), "--set", "split={grid: [2, 2]}")
    assert done.returncode != 0
    assert done.stderr.count("the grid in the file needs 4 ranks, got 3") == 1


def test_finds_python_without_configuration() -> None:
    surroundings = {name: value for name, value in environment().items() if name != "WEFT_PYTHON"}
    done = subprocess.run(command("doctor"), env=surroundings, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and "torch" in done.stdout, done.stderr


def run_with_file_per_rank(tmp_path: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    """Simulates hosts without a shared file system."""
    script = tmp_path / "rank.sh"
    cases = "".join(f"{rank}) file={file};; " for rank, file in enumerate(files))
    script.write_text(
        f"case $OMPI_COMM_WORLD_RANK in {cases}esac\nexec {command()[0]} train $file --out {tmp_path}/run"
    )
    return subprocess.run(
        [str(LAUNCHER), "-n", str(len(files)), "sh", str(script)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_reports_a_rank_without_the_file(tmp_path: Path) -> None:
    done = run_with_file_per_rank(tmp_path, toy_file(tmp_path), tmp_path / "absent.yaml")
    assert done.returncode != 0
    assert "rank 1: " in done.stderr and "absent.yaml" in done.stderr
    assert not (tmp_path / "run").exists()


def test_reports_a_rank_with_another_file(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(toy_file(tmp_path).read_text().replace("rate: 0.003", "rate: 0.004"))
    done = run_with_file_per_rank(tmp_path, tmp_path / "toy.yaml", other)
    assert done.returncode != 0
    assert "which has different contents on other ranks" in done.stderr


def test_resume_rejects_other_batches(finished: Path, tmp_path: Path) -> None:
    refused = {
        "model.batch_size=16": "batch_size is 16, but the run started with 8",
        "seed=4": "seed is 4, but the run started with 3",
        "data.shuffle=false": "shuffle is 0, but the run started with 1",
    }
    jobs: list[list[str | Path]] = []
    for setting in refused:
        for ranks in ("1", "2"):
            out = shutil.copytree(finished, tmp_path / f"{setting} {ranks}")  # one job at a time may use a folder
            jobs.append(["train", "-n", ranks, toy_file(tmp_path), "--set", setting, "--resume", "--out", out])
    texts = [text for text in refused.values() for _ in ("1", "2")]
    for done, text in zip(weft_together(*jobs), texts, strict=True):
        assert done.returncode != 0
        assert done.stderr.count(f"cannot resume: {text}") == 1, done.stderr


def test_reports_a_used_folder_once(finished: Path, tmp_path: Path) -> None:
    for ranks in ("1", "2"):
        done = weft("train", "-n", ranks, toy_file(tmp_path), "--out", finished)
        assert done.returncode == 2
        assert done.stderr.count(f"{finished} already contains a run; continue it with --resume") == 1
        assert "communicator" not in done.stderr


def test_accepts_options_in_any_order(tmp_path: Path) -> None:
    file = toy_file(tmp_path)
    done = weft("check", "--set", "model.epochs=1", "--set", "seed=4", file, "-n", "4")
    assert done.returncode == 0, done.stderr


def test_rejects_unknown_commands(tmp_path: Path) -> None:
    done = weft("trian", toy_file(tmp_path))
    assert done.returncode == 2
    assert "unknown command 'trian'; did you mean 'train'?" in done.stderr and "sml-demo" in done.stderr
    wrong = [[], ["train"], ["train", "toy.yaml", "-n", "0"], ["check", "toy.yaml", "--unknown"], ["--unknown"]]
    for arguments, done in zip(wrong, weft_together(*wrong, cwd=tmp_path), strict=True):
        assert done.returncode == 2 and done.stderr, arguments


def test_prints_help() -> None:
    whole, train, compare = weft_together(["--help"], ["train", "--help"], ["compare", "--help"])
    assert whole.returncode == train.returncode == compare.returncode == 0
    assert "--tolerance" in compare.stdout


def test_rejects_a_rank_count_that_differs_from_the_launchers(tmp_path: Path) -> None:
    arguments = [str(LAUNCHER), "-n", "2", *command("train", "-n", "3", toy_file(tmp_path))]
    done = subprocess.run(arguments, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert done.stderr.count("-n 3 differs from the 2 ranks that the launcher started") == 1


@pytest.mark.parametrize("ranks", ["1", "2"])
def test_reports_missing_data(tmp_path: Path, ranks: str) -> None:
    arguments = command("train", "-n", ranks, EXAMPLES / "cifar10_distarray_gb.yaml", "--out", tmp_path / "run")
    surroundings = {**environment(), "HOME": str(tmp_path)}
    done = subprocess.run(arguments, env=surroundings, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.count(f"'{tmp_path}/data/CIFAR10': no such folder") == 1, done.stderr
    assert "data_batch_1.bin test_batch.bin" in done.stderr and "WEFT_DATA is not set" in done.stderr
    assert "curl" in done.stderr and "MPI_ABORT" not in done.stderr


def test_each_run_gets_a_new_folder(tmp_path: Path) -> None:
    file = toy_file(tmp_path)
    for _ in range(2):
        assert weft("train", file, "--set", "model.epochs=1", cwd=tmp_path).returncode == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["toy", "toy-2"]
    done = weft("train", file, "--set", "model.epochs=2", "--resume", cwd=tmp_path)
    assert done.returncode == 0 and "resuming from runs/toy-2/" in done.stdout, done.stdout
    assert len(curve(tmp_path / "runs" / "toy-2")) == 2 * len(curve(tmp_path / "runs" / "toy"))


def test_a_rank_reports_a_rebuilt_cache(tmp_path: Path) -> None:
    file = tmp_path / "cached.yaml"
    file.write_text(
        toy_file(tmp_path).read_text().replace("classes: 3", f"classes: 3, cache: '{tmp_path}/c_{{rank}}_{{size}}.bin'")
    )
    for _ in range(2):
        done = weft("train", "-n", "2", file, "--set", "model.epochs=0", cwd=tmp_path)
        assert done.returncode == 0 and "c_1_2-train.bin" not in done.stderr, done.stderr
    (tmp_path / "c_1_2-train.bin").write_bytes(b"something else")
    done = weft("train", "-n", "2", file, "--set", "model.epochs=0", cwd=tmp_path)
    assert done.returncode == 0 and "rank 1: " in done.stderr and "c_1_2-train.bin" in done.stderr, done.stderr


def test_trains_with_checks_disabled(tmp_path: Path) -> None:
    done = subprocess.run(
        command("train", "-n", "2", toy_file(tmp_path), "--set", "model.epochs=1", "--out", tmp_path / "run"),
        env={**environment(), "WEFT_CHECK": "0"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert checkpoint_steps(tmp_path / "run")[-1] == STEPS // 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    done = weft("train", toy_file(folder), "--out", folder / "one")
    assert done.returncode == 0, done.stderr
    assert "test error" in done.stdout
    return folder / "one"


def test_a_run_writes_its_folder(finished: Path) -> None:
    for name in ["config.yaml", "metrics.jsonl", "split.json", "trace.json", "pictures/confusion-test.json"]:
        assert (finished / name).is_file(), name
    assert sorted(curve(finished)) == list(range(1, STEPS + 1))
    assert checkpoint_steps(finished)[-1] == STEPS
    assert weft("check", finished / "config.yaml").returncode == 0


def test_writes_tensorboard_events(finished: Path) -> None:
    (file,) = finished.glob("events.out.tfevents.*")
    shown = scalars(file.read_bytes())
    for name in ["train/cost", "train/epoch cost", "test/error", "final/test_error"]:
        points = {step: value for tag, step, value, _ in shown if tag == name}
        assert points == pytest.approx(curve(finished, name), rel=1e-6) and points, name
    assert RESTART not in [tag for tag, *_ in shown]


def test_epoch_cost_is_the_mean_of_its_batches(finished: Path) -> None:
    batches, epochs = curve(finished), curve(finished, "train/epoch cost")
    assert len(epochs) == 4
    for last, cost in epochs.items():
        assert cost == pytest.approx(sum(batches[step] for step in range(last - 29, last + 1)) / 30)


def test_curve_does_not_depend_on_the_rank_count(finished: Path, tmp_path: Path) -> None:
    file = toy_file(tmp_path)
    outs = [tmp_path / ranks for ranks in ("2", "4")]
    for out, done in zip(outs, weft_together(*(["train", "-n", out.name, file, "--out", out] for out in outs))):
        assert done.returncode == 0, done.stderr
        expected = curve(finished)
        assert curve(out) == pytest.approx(expected, rel=1e-4)
        ours, theirs = (checkpoint.load(checkpoint.latest(run)) for run in [out, finished])
        assert ours.keys() == theirs.keys()
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], rtol=2e-3, atol=2e-4)


def test_plain_torch_loads_the_parameters(finished: Path) -> None:
    state = checkpoint.load(checkpoint.latest(finished))
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
        torch.nn.Linear(8 * 7 * 5, 20), torch.nn.ReLU(), torch.nn.Linear(20, 3),
    )  # fmt: skip
    with torch.no_grad():
        for module, layer in [(net[0], "layer0"), (net[4], "layer3"), (net[6], "layer4")]:
            weight = state[f"{layer}.weight"]
            module.weight.copy_(weight if weight.dim() == module.weight.dim() else weight.flatten(1))
            module.bias.copy_(state[f"{layer}.bias"])
        assert net(torch.rand(2, 1, 16, 12)).isfinite().all()


def plain_network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.Linear(8 * 7 * 5, 20), torch.nn.Linear(20, 3))


def experiment_state(net: torch.nn.Sequential) -> dict[str, torch.Tensor]:
    state = {}
    for module, layer in zip(net, ["layer0", "layer3", "layer4"], strict=True):
        state |= {f"{layer}.weight": module.weight.data, f"{layer}.bias": module.bias.data}
    return state


def test_training_starts_with_weights_of_plain_torch(tmp_path: Path, finished: Path) -> None:
    net = plain_network()
    torch.nn.init.zeros_(net[2].weight)
    torch.nn.init.zeros_(net[2].bias)
    state = experiment_state(net)
    state["layer3.weight"] = state["layer3.weight"].view(20, 8, 7, 5)
    jobs = []
    for ranks in ("1", "3"):
        checkpoint.save(state, tmp_path / ranks / "checkpoints/step-00000000")
        job = ["train", "-n", ranks, toy_file(tmp_path), "--out", tmp_path / ranks, "--resume"]
        jobs.append([*job, "--set", "model.epochs=1"])
    for done in weft_together(*jobs):
        assert done.returncode == 0, done.stdout + done.stderr
    curves = [curve(tmp_path / ranks) for ranks in ("1", "3")]
    assert curves[0][1] == pytest.approx(math.log(3), rel=1e-6)  # three equally likely classes
    assert curves[1] == pytest.approx(curves[0], rel=1e-4)


def test_resumes_from_an_edited_checkpoint(tmp_path: Path, finished: Path) -> None:
    last = checkpoint.latest(finished)
    changed = {"layer3.weight": checkpoint.load(last)["layer3.weight"].flatten(1) * 0.5}  # the shape in torch.nn.Linear
    jobs = []
    for ranks in ("1", "2"):
        out = tmp_path / ranks
        folder = checkpoint.save(changed, out / "checkpoints" / last.name, like=last)
        back = checkpoint.load(folder)
        for name, tensor in checkpoint.load(last).items():
            assert torch.equal(back[name], tensor * 0.5 if name == "layer3.weight" else tensor), name
        jobs.append(["train", "-n", ranks, toy_file(tmp_path), "--out", out, "--resume", "--set", "model.epochs=5"])
    curves = []
    for ranks, done in zip(("1", "2"), weft_together(*jobs), strict=True):
        assert done.returncode == 0, done.stdout + done.stderr
        (events,) = (tmp_path / ranks).glob("events.out.tfevents.*")
        assert (RESTART, STEPS + 1) in [(tag, step) for tag, step, *_ in scalars(events.read_bytes())]
        curves.append(curve(tmp_path / ranks))
    assert sorted(curves[0]) == list(range(STEPS + 1, STEPS + 31))
    assert curves[1] == pytest.approx(curves[0], rel=1e-4)


def test_rejects_weights_of_another_shape(tmp_path: Path, finished: Path) -> None:
    state = experiment_state(plain_network())  # layer3 in the shape of torch.nn.Linear
    checkpoint.save(state, tmp_path / "a/checkpoints/step-00000000")
    del state["layer4.bias"]
    checkpoint.save(state, tmp_path / "b/checkpoints/step-00000000")
    file = toy_file(tmp_path)
    done, incomplete = weft_together(
        ["train", "-n", "2", file, "--out", tmp_path / "a", "--resume"],
        ["train", file, "--out", tmp_path / "b", "--resume"],
    )
    assert done.returncode != 0
    assert "tensor 'layer3.weight' does not match: this experiment has F32 [20, 8, 7, 5]" in done.stderr
    assert "has F32 [20, 280]" in done.stderr
    assert incomplete.returncode != 0
    with pytest.raises(checkpoint.CheckpointError, match="expected a folder 'step-<number>'"):
        checkpoint.save(state, tmp_path / "c")
    last = checkpoint.latest(finished)
    for wrong in [{"layer9.weight": torch.zeros(1)}, {"layer3.weight": torch.zeros(3)}]:
        with pytest.raises(checkpoint.CheckpointError, match="layer"):
            checkpoint.save(wrong, tmp_path / "d/checkpoints/step-1", like=last)
    with pytest.raises(checkpoint.CheckpointError, match="complex64"):
        checkpoint.save({"w": torch.zeros(1, dtype=torch.complex64)}, tmp_path / "e/checkpoints/step-1")


@pytest.mark.parametrize("ranks", [1, 2])
def test_ctrl_c_saves_a_checkpoint_and_prints_the_resume_command(tmp_path: Path, ranks: int) -> None:
    out = tmp_path / "run"
    arguments = ["train", "-n", str(ranks), toy_file(tmp_path), "--out", out, "--set", "model.epochs=400"]
    job = subprocess.Popen(
        command(*arguments), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (out / "metrics.jsonl").exists() and job.poll() is None:
        time.sleep(0.05)
    time.sleep(0.3)
    job.send_signal(signal.SIGINT)
    printed, errors = job.communicate(timeout=120)
    assert job.returncode == 130, printed + errors
    assert "continue with: weft train --resume" in printed
    last = max(curve(out))
    assert checkpoint_steps(out)[-1] == last
    # With fewer epochs than are finished, the run ends at once.
    done = weft("train", "-n", str(ranks), toy_file(tmp_path), "--out", out, "--resume", "--set", "model.epochs=1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"resuming from {out}/checkpoints/step-{last:08}" in done.stdout


def test_ctrl_c_of_the_launcher_keeps_a_checkpoint(tmp_path: Path) -> None:
    """Open MPI terminates its ranks, and kills them if they are slow, so the last checkpoint may be an earlier one."""
    out = tmp_path / "run"
    arguments = command("train", toy_file(tmp_path), "--out", out, "--set", "model.epochs=400")
    job = subprocess.Popen(
        [str(LAUNCHER), "-n", "2", *arguments], env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not checkpoint_steps(out) and job.poll() is None:
        time.sleep(0.05)
    job.send_signal(signal.SIGINT)
    assert job.wait(timeout=120) != 0
    last = checkpoint_steps(out)[-1]
    done = weft("train", "-n", "2", toy_file(tmp_path), "--out", out, "--resume", "--set", "model.epochs=1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"resuming from {out}/checkpoints/step-{last:08}" in done.stdout
