"""Runs tests of other folders on simulated hosts. WEFT_HOSTS=1 selects all of them; `make test-hosts` sets it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts.cluster import Cluster, requires_hosts

requires_hosts()

TESTS = Path(__file__).parents[1]
ALWAYS = ["communication/values_test", "process_group/collectives_test"]
ON_REQUEST = [
    "communication/gradients_test",
    "communication/messages_test",
    "communication/tape_test",
    "communication/errors_test",
    "communication/recovery_test",
    "communication/random_programs_test",
    "process_group/messages_test",
    "process_group/async_test",
    "process_group/groups_test",
    "process_group/training_test",
    "layer_parallel/network_test",
    "layer_parallel/pipeline_test",
    "layer_parallel/training_test",
    "time_parallel/splits_test",
    "spatial/parallelize_test",
    "spatial/random_test",
    "compat/mpi4torch_test",
]
SUITES = ALWAYS + (ON_REQUEST if os.environ.get("WEFT_HOSTS") else [])
SHAPES = [(2, 2), (4, 1)] if os.environ.get("WEFT_HOSTS") else [(2, 2)]


@pytest.fixture(scope="module", params=SHAPES, ids=lambda shape: f"{shape[0]}x{shape[1]}")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(*request.param) as cluster:
        yield cluster


@pytest.mark.parametrize("suite", SUITES)
def test_suite_passes_on_several_hosts(cluster: Cluster, suite: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no", TESTS / f"{suite}.py"]
    status, output = cluster.run(*command)
    assert status == 0 and " passed" in output, output
