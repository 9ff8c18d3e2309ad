"""``weft compare`` and weft.checkpoint: known differences, and damaged checkpoints."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
import torch
from tools import runs
from weft.tools import compare
from weft.tools._run import Run

from weft import checkpoint


def tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "conv.weight": torch.randn(5, 3, 2, generator=generator),
        "odd": torch.randn(3, generator=generator, dtype=torch.float64),
        "step": torch.tensor(7),
        "none": torch.zeros(0, 4),
    }


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_loads_checkpoints_of_any_number_of_ranks(tmp_path: Path, ranks: int) -> None:
    runs.write_checkpoint(tmp_path, tensors(1), step=9)
    runs.write_checkpoint(tmp_path, tensors(), ranks, step=10)
    loaded = checkpoint.load(checkpoint.latest(tmp_path))
    assert loaded.keys() == tensors().keys()
    for name, expected in tensors().items():
        assert loaded[name].dtype == expected.dtype and torch.equal(loaded[name], expected)


def test_missing_checkpoint_raises(tmp_path: Path) -> None:
    with pytest.raises(checkpoint.CheckpointError, match="no checkpoint"):
        checkpoint.latest(tmp_path)
    with pytest.raises(checkpoint.CheckpointError, match=r"index\.json"):
        checkpoint.load(tmp_path)


def test_truncated_files_are_detected(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    whole = runs.safetensors(tensors())
    path.write_bytes(whole)
    assert checkpoint.read_safetensors(path).keys() == tensors().keys()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(checkpoint.CheckpointError):
            checkpoint.read_safetensors(path)


def damage(index: dict) -> list[object]:
    """Returns invalid indices, each with one error."""

    def changed(change) -> dict:
        copy = json.loads(json.dumps(index))
        change(copy["tensors"]["conv.weight"])
        return copy

    piece = lambda t: t["pieces"][0]  # noqa: E731
    return [
        changed(lambda t: t.update(shape=[6, 3, 2])),
        changed(lambda t: t.update(dtype="F64")),
        changed(lambda t: t.update(dtype="F8")),
        changed(lambda t: t["pieces"].pop()),
        changed(lambda t: piece(t).update(offset=[4, 0, 0])),
        changed(lambda t: piece(t).update(offset=[-1, 0, 0])),
        changed(lambda t: piece(t).update(offset=[0])),
        changed(lambda t: piece(t).update(shape=[1, 3, 2])),
        changed(lambda t: piece(t).update(file="../rank-0.safetensors")),
        changed(lambda t: piece(t).update(file="absent.safetensors")),
        changed(lambda t: piece(t).update(file="..")),
        changed(lambda t: t.update(shape=[-5, 3, 2])),
        changed(lambda t: t.update(shape=[math.inf, 3, 2])),
        changed(lambda t: t.update(shape=[5.5, 3, 2])),
        changed(lambda t: piece(t).update(shape=[-3, 3, 2])),
        changed(lambda t: piece(t).update(offset=[0, 0, 0, 0], shape=[3, 3, 2, 1])),
        {"tensors": None},
        {},
        [],
    ]


def test_flipped_bits_are_detected(tmp_path: Path) -> None:
    folder = checkpoint.save(tensors(), tmp_path / "step-1")
    whole = checkpoint.load(folder)
    for file in sorted(folder.iterdir()):
        content = file.read_bytes()
        for at in range(0, len(content), 1 + len(content) // 101):
            file.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
            try:
                loaded = checkpoint.load(folder)
            except checkpoint.CheckpointError:
                continue
            assert all(torch.equal(loaded[name], whole[name]) for name in whole), (file.name, at)
        file.write_bytes(content)
    shard = folder / "shard-0-of-1.safetensors"
    shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(
        checkpoint.CheckpointError, match=r"shard-0-of-1.safetensors' is damaged: the checksum of '[\w.]+'"
    ):
        checkpoint.load(folder)


def test_invalid_indices_are_rejected(tmp_path: Path) -> None:
    folder = runs.write_checkpoint(tmp_path, tensors(), ranks=2)
    index = json.loads((folder / "index.json").read_text())
    for number, lie in enumerate(damage(index)):
        (folder / "index.json").write_text(json.dumps(lie))
        with pytest.raises(checkpoint.CheckpointError):
            checkpoint.load(folder)
            pytest.fail(f"lie {number} was believed")


def write_pieces(folder: Path, shape: list[int], pieces: list[tuple[list[int], list[int]]]) -> Path:
    """Writes a checkpoint of one tensor; each piece is a shard of ones."""
    folder.mkdir(parents=True)
    described = []
    for number, (offset, size) in enumerate(pieces):
        file = f"shard-{number}.safetensors"
        (folder / file).write_bytes(runs.safetensors({"w": torch.ones(size)}))
        described.append({"file": file, "offset": offset, "shape": size})
    tensor = {"dtype": "F32", "shape": shape, "pieces": described}
    (folder / "index.json").write_text(json.dumps({"tensors": {"w": tensor}}))
    return folder


def test_pieces_that_cover_a_tensor_are_accepted(tmp_path: Path) -> None:
    pieces = [([0, 0], [2, 3]), ([2, 0], [2, 1]), ([2, 1], [2, 2]), ([4, 0], [0, 3])]
    assert torch.equal(checkpoint.load(write_pieces(tmp_path / "a", [4, 3], pieces))["w"], torch.ones(4, 3))
    assert checkpoint.load(write_pieces(tmp_path / "b", [], [([], [])]))["w"] == 1


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        (
            [([0, 0], [2, 3]), ([0, 0], [2, 3])],
            "of 'w' in .* overlaps",
        ),  # the size matches, but one half is covered twice
        ([([0, 0], [3, 2]), ([1, 1], [3, 2])], "of 'w' in .* overlaps"),
        ([([0, 0], [4, 3]), ([1, 1], [1, 1])], "of 'w' in .* overlaps"),
        ([([0, 0], [2, 3]), ([3, 0], [1, 3])], "9 of 12"),
        ([], "0 of 12"),
    ],
)
def test_pieces_that_overlap_or_leave_gaps_are_rejected(
    tmp_path: Path, pieces: list[tuple[list[int], list[int]]], why: str
) -> None:
    with pytest.raises(checkpoint.CheckpointError, match=why):
        checkpoint.load(write_pieces(tmp_path / "step-1", [4, 3], pieces))


def test_latest_has_the_largest_number(tmp_path: Path) -> None:
    place = tmp_path / "checkpoints"
    for name in ["step-00000240", "step-120", "step-00000119"]:
        checkpoint.save(tensors(), place / name)
    assert checkpoint.latest(tmp_path).name == "step-00000240"
    for name in ["step-best", "step-999x", "step-", "step-\u0669", "step-1_000", "step-+999", "step-" + "9" * 30]:
        (place / name).mkdir()
        (place / name / "index.json").write_text("{}")
    assert checkpoint.latest(tmp_path).name == "step-00000240"
    for step in [10**8, 10**8 + 1, 3 * 10**9]:
        checkpoint.save(tensors(), place / f"step-{step:08}")
        assert checkpoint.latest(tmp_path).name == f"step-{step}"


@pytest.mark.parametrize("name", ["step-best", "step-", "step-1.5", "step--1", "step-1\n", "step-" + "9" * 30, "1"])
def test_names_without_a_number_are_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(checkpoint.CheckpointError, match="expected a folder 'step-<number>'"):
        checkpoint.save(tensors(), tmp_path / "checkpoints" / name)
    assert not list(tmp_path.iterdir())


def test_save_syncs_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "checkpoints/step-00000001"
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append((os.fstat(file).st_ino, folder.exists())))
    checkpoint.save(tensors(), folder)
    files = {(path.stat().st_ino, False) for path in folder.iterdir()}
    assert set(synced[:2]) == files  # the files, then the folder, then its parent
    assert synced[2:] == [(folder.stat().st_ino, False), (folder.parent.stat().st_ino, True)]


def test_existing_checkpoints_are_not_overwritten(tmp_path: Path) -> None:
    folder = checkpoint.save(tensors(), tmp_path / "checkpoints/step-00000001")
    with pytest.raises(checkpoint.CheckpointError, match=r"step-00000001.*already exists"):
        checkpoint.save(tensors(1), folder)
    assert torch.equal(checkpoint.load(folder)["odd"], tensors()["odd"])
    (tmp_path / "checkpoints/step-2").write_text("a file")
    with pytest.raises(checkpoint.CheckpointError, match=r"step-2.*already exists"):
        checkpoint.save(tensors(), tmp_path / "checkpoints/step-2")
    assert sorted(path.name for path in folder.parent.iterdir()) == ["step-00000001", "step-2"]


def test_a_failed_save_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "checkpoints"
    with pytest.raises(checkpoint.CheckpointError, match="complex64"):
        checkpoint.save({"w": torch.zeros(1, dtype=torch.complex64)}, place / "step-1")
    assert not list(place.iterdir())

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(tensors(), place / "step-1")
    assert not list(place.iterdir())


def test_save_like_a_damaged_checkpoint_raises(tmp_path: Path) -> None:
    like = checkpoint.save(tensors(), tmp_path / "like/step-1")
    whole = json.loads((like / "index.json").read_text())
    fine = checkpoint.save(tensors(1), tmp_path / "fine/step-1", like=like)
    assert json.loads((fine / "index.json").read_text())["numbers"] == whole["numbers"]
    without = [{key: value for key, value in whole.items() if key != lost} for lost in ("experiment", "numbers")]
    lies = [
        {**whole, "experiment": 3},
        {**whole, "numbers": [1]},
        *({**whole, "numbers": {"step": n}} for n in ("one", None, math.nan)),
    ]
    for damaged in ["{", "[]", "null", "\ud800", *map(json.dumps, [*without, *lies])]:
        (like / "index.json").write_text(damaged, errors="surrogatepass")
        with pytest.raises(checkpoint.CheckpointError, match="like/step-1' is damaged"):
            checkpoint.save(tensors(1), tmp_path / "new/step-1", like=like)
    with pytest.raises(checkpoint.CheckpointError, match="absent"):
        checkpoint.save(tensors(1), tmp_path / "new/step-1", like=tmp_path / "absent/step-1")
    assert not (tmp_path / "new").exists()


def write_pair(folder: Path) -> tuple[Path, Path]:
    a, b = folder / "a", folder / "b"
    runs.write_metrics(a, [*runs.metrics("loss", [4.0, 2.0, 1.0]), *runs.metrics("only a", [1.0])])
    runs.write_metrics(b, runs.metrics("loss", [4.0, 2.5, 1.0, 0.5]))
    runs.write_checkpoint(a, tensors(), ranks=1)
    other = tensors()
    other["conv.weight"][4, 2, 1] += 0.25
    runs.write_checkpoint(b, other, ranks=3)
    return a, b


def test_compares_curves_and_parameters_of_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write_pair(tmp_path)
    loss, only = compare.compare_curves(Run(a), Run(b))
    assert loss == ("loss", (1.0, 0.5), pytest.approx(0.2), 1, 3)
    assert only == ("only a", (1.0, None), None, None, 0)
    found = compare.compare_parameters(checkpoint.latest(a), checkpoint.latest(b))
    assert found.name == "conv.weight" and found.largest == pytest.approx(0.25) and found.compared == 4
    largest = max(float(t["conv.weight"].abs().max()) for t in (checkpoint.load(checkpoint.latest(r)) for r in (a, b)))
    assert found.relative == pytest.approx(0.25 / largest) and found.relative_name == "conv.weight"
    page = tmp_path / "page.html"
    assert compare.main([str(a), str(b), "--html", str(page)]) == 0
    assert compare.main([str(a), str(b), "--html", str(tmp_path / "absent" / "page.html")]) == 1
    shown = capsys.readouterr().out
    assert "0.25" in shown and "conv.weight" in shown and "only a" in shown
    assert page.read_text().count('class="curve ') == 3


def test_settings_times_and_weights_come_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write_pair(tmp_path)
    for run, ranks in ((a, "1"), (b, "4")):
        (run / "run.json").write_text(json.dumps({"seed": "1", "ranks": ranks}))
        (run / "config.yaml").write_text(f"seed: 1\nmodel:\n  epochs: {ranks}\n")
    slow = [*runs.metrics("loss", [4.0, 2.0, 1.0]), *runs.metrics("speed/images per second", [100.0])]
    for line in slow:
        line["time"] = 2 * (float(str(line["time"])) - 1.7e9) + 1.7e9
    runs.write_metrics(a, slow)
    runs.write_metrics(b, [*runs.metrics("loss", [4.0, 2.0, 1.0]), *runs.metrics("speed/images per second", [150.0])])
    first, second = Run(a), Run(b)
    assert compare.compare_settings(first, second) == [["ranks", "1", "4"], ["config.yaml", "epochs: 1", "epochs: 4"]]
    assert compare.compare_times(first, second) == [
        ["seconds", "4", "2", "2 (speed-up of b)"],
        ["images per second", "100", "150", "1.5"],
    ]
    page = tmp_path / "page.html"
    assert compare.main([str(a), str(b), "--html", str(page)]) == 0
    shown = capsys.readouterr().out
    places = [shown.index(text) for text in ("setting ", "speed-up of b", "weights: largest difference", "curve ")]
    assert places == sorted(places)
    # A dashed curve on a wide one: equal curves stay visible.
    assert page.read_text().count('class="curve wide"') == page.read_text().count('class="curve dashed"') == 2


def test_optimizer_state_does_not_hide_the_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weight = torch.full((3,), 2.0, dtype=torch.float64)
    state = {"w": weight, "w.momentum": weight, "w.square": weight, "w.updates": torch.tensor([5.0])}
    a = with_parameters(tmp_path / "a", state)
    b = with_parameters(tmp_path / "b", {**state, "w": weight + 1e-3, "w.updates": torch.tensor([10.0])})
    found = compare.compare_parameters(checkpoint.latest(a), checkpoint.latest(b))
    assert (found.name, found.compared, found.state_name, found.state) == ("w", 1, "w.updates", 0.5)
    assert compare.main([a, b, "--tolerance", "1e-2"]) == 1
    shown = capsys.readouterr().out
    assert "0.001 in w (1 parameters compared)" in shown and "optimizer: largest relative difference 0.5" in shown
    assert "differs by more than 0.01: state of the optimizer: 0.5 in w.updates" in shown


def test_tolerance_decides_the_status(tmp_path: Path) -> None:
    a, b = write_pair(tmp_path)
    assert compare.main([str(a), str(b), "--tolerance", "0.1"]) == 1
    assert compare.main([str(a), str(a), "--tolerance", "0"]) == 0
    for run, speed in ((a, 100.0), (b, 300.0)):
        runs.write_metrics(run, [*runs.metrics("loss", [1.0]), *runs.metrics("speed/images per second", [speed])])
    assert compare.main([str(a), str(b), "--tolerance", "0.2"]) == 0  # the speed is not a result
    empty = tmp_path / "empty"
    empty.mkdir()
    assert compare.main([str(empty), str(empty), "--tolerance", "1"]) == 1  # empty runs do not count as equal


def test_missing_runs_and_checkpoints_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    runs.write_metrics(a, runs.metrics("loss", [1.0]))
    runs.write_metrics(b, runs.metrics("loss", [1.0]))
    assert compare.main([str(a), str(b)]) == 0
    assert "parameters not compared" in capsys.readouterr().out
    assert compare.main([str(a), str(tmp_path / "absent")]) == 1
    assert "absent" in capsys.readouterr().err


def with_parameters(run: Path, tensors: dict[str, torch.Tensor]) -> str:
    runs.write_metrics(run, runs.metrics("loss", [1.0]))
    runs.write_checkpoint(run, tensors)
    return str(run)


def test_a_small_parameter_counts_as_much_as_a_large_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weight, bias = torch.full((3,), 10.0, dtype=torch.float64), torch.full((2,), 1e-6)
    a = with_parameters(tmp_path / "a", {"weight": weight, "bias": bias})
    b = with_parameters(tmp_path / "b", {"weight": weight + 1e-5, "bias": 2 * bias})
    found = compare.compare_parameters(checkpoint.latest(a), checkpoint.latest(b))
    assert (found.name, found.relative_name) == ("weight", "bias")
    assert found.largest == pytest.approx(1e-5) and found.relative == pytest.approx(0.5)
    assert compare.main([a, b, "--tolerance", "1e-4"]) == 1
    shown = capsys.readouterr().out
    assert "1e-05 in weight (2 parameters compared)" in shown and "0.5 in bias" in shown
    assert "differs by more than 0.0001: parameters: 0.5 in bias" in shown
    assert compare.main([a, b, "--tolerance", "0.51"]) == 0


def test_a_checkpoint_that_cannot_be_read_is_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (with_parameters(tmp_path / name, tensors()) for name in "ab")
    assert compare.main([a, b, "--tolerance", "0"]) == 0
    index = checkpoint.latest(b) / "index.json"
    index.write_text("{")
    for pair in ([a, b], [b, a], [b, b]):
        assert compare.main(pair) == 0  # without --tolerance
        assert "parameters not compared" in capsys.readouterr().out
        assert compare.main([*pair, "--tolerance", "1"]) == 1
        assert "differs by more than 1.0: parameters: not compared" in capsys.readouterr().out
    index.unlink()
    for pair in ([a, b], [b, a], [b, b]):
        assert compare.main([*pair, "--tolerance", "1"]) == 1
    runs.write_metrics(tmp_path / "c", runs.metrics("loss", [1.0]))
    assert compare.main([a, str(tmp_path / "c"), "--tolerance", "1"]) == 1
    assert compare.main([str(tmp_path / "c"), str(tmp_path / "c"), "--tolerance", "1"]) == 0  # neither has checkpoints
    (tmp_path / "c/checkpoints/step-best").mkdir(parents=True)
    assert compare.main([str(tmp_path / "c"), str(tmp_path / "c"), "--tolerance", "1"]) == 0


def test_unprintable_names_are_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (with_parameters(tmp_path / run, {"w\x1b" + run: torch.ones(1)}) for run in "ab")
    for run in (a, b):
        runs.write_metrics(Path(run), runs.metrics("loss\ud800", [1.0]))
    page = tmp_path / "page.html"
    assert compare.main([a, b, "--html", str(page), "--tolerance", "1"]) == 1
    shown = capsys.readouterr().out
    shown.encode()
    assert "loss\ufffd" in shown and "w\ufffda [1]" in shown and "loss\ufffd" in page.read_text()


def test_equal_non_finite_values_have_no_difference() -> None:
    nan, inf = math.nan, math.inf
    assert compare.relative_difference(nan, nan) == 0 and compare.relative_difference(inf, inf) == 0
    assert compare.relative_difference(nan, 1) == inf and compare.relative_difference(inf, -inf) == inf
    assert compare.relative_difference(0, 0) == 0 and compare.relative_difference(0, 1e-30) == 1


def test_compares_non_finite_and_unmatched_parameters(tmp_path: Path) -> None:
    first = runs.write_checkpoint(tmp_path / "a", {"x": torch.tensor([1.0, math.nan]), "y": torch.ones(2)})
    second = runs.write_checkpoint(tmp_path / "b", {"x": torch.tensor([1.0, math.nan]), "y": torch.ones(3)})
    found = compare.compare_parameters(first, second)
    assert found.largest == 0 and found.only == (["y [2]"], ["y [3]"])
    third = runs.write_checkpoint(tmp_path / "c", {"x": torch.tensor([1.0, 2.0])})
    assert compare.compare_parameters(first, third).largest == math.inf


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([math.inf, 1.0, math.nan], [math.inf, 2.0, math.nan], (1.0, 0.5)),
        ([-math.inf, math.nan], [-math.inf, math.nan], (0.0, 0.0)),
        ([math.inf, 1.0], [-math.inf, 1.0], (math.inf, math.inf)),
        ([math.inf, 1.0], [math.nan, 1.0], (math.inf, math.inf)),
        ([math.nan, 1.0], [1.0, math.nan], (math.inf, math.inf)),
        ([math.inf, 1.0], [5.0, 1.0], (math.inf, math.inf)),
        ([0.0, 0.0], [0.0, -0.0], (0.0, 0.0)),
        ([0.0, 5e-324], [0.0, 0.0], (5e-324, 1.0)),
    ],
)
def test_absolute_and_relative_differences_of_parameters(
    tmp_path: Path, ours: list[float], theirs: list[float], expected: tuple[float, float]
) -> None:
    first, second = (
        runs.write_checkpoint(tmp_path / name, {"x": torch.tensor(values, dtype=torch.float64)})
        for name, values in (("a", ours), ("b", theirs))
    )
    found = compare.compare_parameters(first, second)
    assert (found.largest, found.relative) == expected
