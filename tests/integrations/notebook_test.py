"""The example notebook runs 2 ranks and shows their curves."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import nbformat
import pytest
import torch
from integrations.examples import FOLDER
from jobs import LAUNCHERS_OWN
from nbclient import NotebookClient
from torch import nn

ENVIRONMENT = Path(__file__).resolve().parents[2] / ".venv" / "bin"


def losses_of_one_process(steps: int) -> list[float]:
    torch.manual_seed(0)
    x = torch.randn(256, 4)
    y = x.sum(1, keepdim=True)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_the_notebook_gives_the_losses_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(LAUNCHERS_OWN)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{ENVIRONMENT}:{os.environ['PATH']}")  # ipyparallel looks for mpiexec there
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(FOLDER / "notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    NotebookClient(notebook, timeout=200, kernel_name="python3").execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells[0].outputs[-1]["data"]["text/plain"] == "2"
    assert "image/png" in cells[2].outputs[-1]["data"]
    losses = ast.literal_eval(cells[3].outputs[-1]["text"])
    assert len(losses) == 20 and losses[-1] < losses[0] / 10
    assert losses == pytest.approx(losses_of_one_process(20), rel=1e-5)
