"""The MPI backend under torch.inference_mode()."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import inference_cases
import pytest
from process_group import default_group


@pytest.fixture(scope="module", autouse=True)
def group(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from default_group.lifetime(request)


@pytest.mark.parametrize("case", inference_cases.CASES, ids=lambda case: case.__name__)
@default_group.not_gloo
def test_collectives_work_in_inference_mode(case: Callable[[int, int], None], rank: int, size: int) -> None:
    inference_cases.check(case, rank, size)
