"""``weft compare`` and weft.checkpoint: differences against values known beforehand; damaged checkpoints."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import runs
import torch
from weft._run import Run

from weft import checkpoint, compare


def tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "conv.weight": torch.randn(5, 3, 2, generator=generator),
        "odd": torch.randn(3, generator=generator, dtype=torch.float64),
        "step": torch.tensor(7),
        "none": torch.zeros(0, 4),
    }


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_checkpoints_of_any_number_of_ranks(tmp_path: Path, ranks: int) -> None:
    runs.write_checkpoint(tmp_path, tensors(1), step=9)
    runs.write_checkpoint(tmp_path, tensors(), ranks, step=10)
    loaded = checkpoint.load(checkpoint.latest(tmp_path))
    assert loaded.keys() == tensors().keys()
    for name, expected in tensors().items():
        assert loaded[name].dtype == expected.dtype and torch.equal(loaded[name], expected)


def test_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(checkpoint.CheckpointError, match="got none"):
        checkpoint.latest(tmp_path)
    with pytest.raises(checkpoint.CheckpointError, match=r"index\.json"):
        checkpoint.load(tmp_path)


def test_every_cut_of_a_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    whole = runs.safetensors(tensors())
    path.write_bytes(whole)
    assert checkpoint.read_safetensors(path).keys() == tensors().keys()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(checkpoint.CheckpointError):
            checkpoint.read_safetensors(path)


def damage(index: dict) -> list[dict]:
    """Indices that lie, one way each."""

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
        {"tensors": None},
        {},
    ]


def test_indices_that_lie(tmp_path: Path) -> None:
    folder = runs.write_checkpoint(tmp_path, tensors(), ranks=2)
    index = json.loads((folder / "index.json").read_text())
    for number, lie in enumerate(damage(index)):
        (folder / "index.json").write_text(json.dumps(lie))
        with pytest.raises(checkpoint.CheckpointError):
            checkpoint.load(folder)
            pytest.fail(f"lie {number} was believed")


def write_pair(folder: Path) -> tuple[Path, Path]:
    a, b = folder / "a", folder / "b"
    runs.write_metrics(a, [*runs.metrics("loss", [4.0, 2.0, 1.0]), *runs.metrics("only a", [1.0])])
    runs.write_metrics(b, runs.metrics("loss", [4.0, 2.5, 1.0, 0.5]))
    runs.write_checkpoint(a, tensors(), ranks=1)
    other = tensors()
    other["conv.weight"][4, 2, 1] += 0.25
    runs.write_checkpoint(b, other, ranks=3)
    return a, b


def test_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write_pair(tmp_path)
    loss, only = compare.compare_curves(Run(a), Run(b))
    assert loss == ("loss", (1.0, 0.5), pytest.approx(0.2), 1, 3)
    assert only == ("only a", (1.0, None), None, None, 0)
    found = compare.compare_parameters(checkpoint.latest(a), checkpoint.latest(b))
    assert found.name == "conv.weight" and found.largest == pytest.approx(0.25) and found.compared == 4
    largest = max(float(t["conv.weight"].abs().max()) for t in (checkpoint.load(checkpoint.latest(r)) for r in (a, b)))
    assert found.relative == pytest.approx(0.25 / largest)
    page = tmp_path / "page.html"
    assert compare.main([str(a), str(b), "--html", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "0.25" in shown and "conv.weight" in shown and "only a" in shown
    assert page.read_text().count('class="curve"') == 3


def test_tolerance_decides_the_status(tmp_path: Path) -> None:
    a, b = write_pair(tmp_path)
    assert compare.main([str(a), str(b), "--tolerance", "0.1"]) == 1
    assert compare.main([str(a), str(a), "--tolerance", "0"]) == 0
    empty = tmp_path / "empty"
    empty.mkdir()
    assert compare.main([str(empty), str(empty), "--tolerance", "1"]) == 1  # nothing equals nothing, but proves nothing


def test_runs_without_checkpoints_or_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    runs.write_metrics(a, runs.metrics("loss", [1.0]))
    runs.write_metrics(b, runs.metrics("loss", [1.0]))
    assert compare.main([str(a), str(b)]) == 0
    assert "parameters are not compared" in capsys.readouterr().out
    assert compare.main([str(a), str(tmp_path / "absent")]) == 1
    assert "absent" in capsys.readouterr().err


def test_values_that_are_not_finite() -> None:
    nan, inf = math.nan, math.inf
    assert compare.relative_difference(nan, nan) == 0 and compare.relative_difference(inf, inf) == 0
    assert compare.relative_difference(nan, 1) == inf and compare.relative_difference(inf, -inf) == inf
    assert compare.relative_difference(0, 0) == 0 and compare.relative_difference(0, 1e-30) == 1


def test_parameters_that_are_not_finite_or_not_in_both(tmp_path: Path) -> None:
    first = runs.write_checkpoint(tmp_path / "a", {"x": torch.tensor([1.0, math.nan]), "y": torch.ones(2)})
    second = runs.write_checkpoint(tmp_path / "b", {"x": torch.tensor([1.0, math.nan]), "y": torch.ones(3)})
    found = compare.compare_parameters(first, second)
    assert found.largest == 0 and found.only == (["y [2]"], ["y [3]"])
    third = runs.write_checkpoint(tmp_path / "c", {"x": torch.tensor([1.0, 2.0])})
    assert math.isnan(compare.compare_parameters(first, third).largest)
