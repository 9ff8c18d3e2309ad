"""The command ``weft plan``: networks, task graphs, pages, real runs, errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from weft.planning.machine import Machine
from weft.planning.validation import validate
from weft.tools import plan as command

from weft.planning import PlanError

NETWORK = """
import torch
from torch import nn


class Step(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return torch.tanh(self.linear(x))


net = nn.Sequential(*(Step() for _ in range(12)))


def make():
    return [Step() for _ in range(8)]


def fail():
    raise RuntimeError("no network today")


number = 3


def recurrent():
    import weft

    return weft.GRU(3, 4, batch_first=True)
"""
MACHINE = ["--latency", "1e-6", "--bandwidth", "1e10", "--cores", "8", "--repeats", "1"]


@pytest.fixture
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / f"network_{abs(hash(request.node.name))}.py"  # modules are cached by name
    path.write_text(NETWORK)
    return path


def run(*arguments: str) -> int:
    return command.main([*arguments, *MACHINE])


@pytest.mark.parametrize("name", ["net", "make"])
def test_table(file: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{file}:{name}", "--input", "4x8", "-n", "6") == 0
    text = capsys.readouterr().out
    assert "pipeline" in text and "mgrit" in text and "1024" in text
    assert any(line.split()[:1] == ["6"] for line in text.splitlines())
    widths = {len(line.rstrip(" *")) for line in text.splitlines() if line[:5].strip().isdigit()}
    assert len(widths) <= 2  # the columns are aligned; the last one may be empty


def test_json_and_page(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "plan.html"
    assert run(f"{file}:net", "--input", "4x8", "--json", "--html", str(page)) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["machine"]["latency"] == 1e-6 and found["answer"]
    assert {each["solver"] for each in found["predictions"]} == {"serial", "pipeline", "mgrit"}
    text = page.read_text()
    assert text.count("<svg") == 3 and "Predictions" in text
    for solver in ("serial", "pipeline", "mgrit"):
        assert f'data-name="{solver}"' in text


@pytest.mark.parametrize(
    ("name", "shape", "solvers"),
    [("net", "4x8", ["pipeline", "mgrit"]), ("recurrent", "2x9x3", ["pipeline", "mgrit", "newton"])],
)
def test_real_runs_are_compared(
    file: Path,
    name: str,
    shape: str,
    solvers: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(validate.__kwdefaults__, "ranks", (2,))  # 4 ranks would take twice as long
    assert run(f"{file}:{name}", "--input", shape, "--json", "--validate") == 0
    compared = json.loads(capsys.readouterr().out)["validation"]
    assert [(each["ranks"], each["solver"]) for each in compared] == [(2, solver) for solver in solvers]
    for each in compared:
        assert each["measured"] > 0 and each["error"] == pytest.approx(each["predicted"] / each["measured"] - 1)


def test_the_network_of_this_machine_is_measured() -> None:
    machine = Machine.measure(cores=3)
    assert 0 < machine.latency < 1 and machine.bandwidth > 1e6 and machine.cores == 3


def test_recorded_task_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def event(rank: int, name: str, number: int, microseconds: float, peer: int = -1) -> dict[str, object]:
        details = {"task": number, "index": 0, "peer": peer, "needs": []}
        return {"ph": "X", "name": name, "pid": rank, "tid": 0, "ts": 0, "dur": microseconds, "args": details}

    (tmp_path / "0.json").write_text(json.dumps([event(0, "step", 0, 1000), event(0, "send", 1, 5, 1)]))
    (tmp_path / "1.json").write_text(json.dumps([event(1, "receive", 0, 7, 0), event(1, "step", 1, 3000)]))
    arguments = ["--latency", "0.002", "--bandwidth", "1e6", "--message-bytes", "1000", "--cores", "2", "--json"]
    assert command.main([str(tmp_path), *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["seconds"] == pytest.approx(0.001 + 0.002 + 0.001 + 0.003)
    assert found["work"] == pytest.approx(0.004) and found["messages"] == 1


@pytest.mark.parametrize(
    ("target", "arguments", "message"),
    [
        ("{file}:net", [], "--input"),
        ("{file}:net", ["--input", "4x7"], "failed with the input"),
        ("{file}:net", ["--input", "4x8", "-n", "0"], "at least one rank"),
        ("{file}:missing", ["--input", "4x8"], "has no object 'missing'; it has"),
        ("{file}:fail", ["--input", "4x8"], "no network today"),
        ("{file}:number", ["--input", "4x8"], "expected a network"),
        ("missing.py:net", ["--input", "4x8"], "does not exist"),
        ("no_such_module:net", ["--input", "4x8"], "cannot import"),
        ("net", ["--input", "4x8"], "FILE.py:OBJECT"),
        ("{file}", ["--input", "4x8"], "not a recorded task graph"),
    ],
)
def test_errors(
    file: Path, target: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(target.format(file=file), *arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("shape", ["4by8", "4x0", ""])
def test_wrong_shapes(file: Path, shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(f"{file}:net", "--input", shape)
    assert "expected a shape such as 32x1x28x28" in capsys.readouterr().err


def test_incomplete_graphs_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(
        '[{"name": "step", "pid": 1, "tid": 0, "dur": 1, "args": {"task": 0, "peer": -1, "index": 0, "needs": []}}]'
    )
    with pytest.raises(PlanError, match="all ranks are needed"):
        command.load_graph(tmp_path, 0)
