"""The MPI backend under torch.inference_mode()."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import default_group
import inference_cases
import pytest
import torch
import torch.distributed as dist


@pytest.fixture(scope="module", autouse=True)
def group(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from default_group.lifetime(request)


@pytest.mark.parametrize("case", inference_cases.CASES, ids=lambda case: case.__name__)
@default_group.not_gloo
def test_collectives_of_inference_mode(case: Callable[[int, int], None], rank: int, size: int) -> None:
    with torch.inference_mode():
        case(rank, size)
    x = torch.ones(3)
    dist.all_reduce(x)  # the group goes on
    assert (x == size).all()
