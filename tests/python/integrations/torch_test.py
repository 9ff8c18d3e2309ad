"""torch's parallel packages and mpi4py on the backend weft: 2 ranks give the result of one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from integrations.examples import loss_of_one_process, losses_on_two_ranks, run


@pytest.mark.parametrize("name", ["pipeline_stages", "device_mesh"])
def test_two_ranks_give_the_loss_of_one_process(name: str) -> None:
    assert losses_on_two_ranks(name) == pytest.approx([loss_of_one_process(name)] * 2, abs=2e-6)


def test_sharded_training_continues_from_a_checkpoint_on_another_number_of_ranks(tmp_path: Path) -> None:
    first = losses_on_two_ranks("fully_sharded", "--save", str(tmp_path / "two"))
    assert first == pytest.approx([loss_of_one_process("fully_sharded", "--save", str(tmp_path / "one"))] * 2, abs=2e-6)
    second = loss_of_one_process("fully_sharded", "--load", str(tmp_path / "two"))
    assert second < 0.95 * first[0]
    assert losses_on_two_ranks("fully_sharded", "--load", str(tmp_path / "one")) == pytest.approx(
        [second] * 2, abs=2e-6
    )


def test_weft_serves_the_name_mpi() -> None:
    assert [(line.backend, line.text) for line in run("mpi_backend", 2)] == [("mpi", "sum 2.0")] * 2


def test_mpi4py_and_weft_share_communicators() -> None:
    expected = "sum 1.0, gradient 4.0, order [1, 0]"
    assert [line.text for line in run("mpi4py_and_weft", 2)] == [expected, expected]
