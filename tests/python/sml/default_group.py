"""Default group for tests of the backend `sml`: rank 0 starts a switch that all ranks use."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from sml.switches import Switch

import weft


def shared_port(port: int) -> int:
    return int(weft.world().broadcast(torch.tensor(port), root=0).item())


def lifetime(request: pytest.FixtureRequest) -> Iterator[Switch | None]:
    """For a module fixture; yields the switch on rank 0."""
    comm = weft.world()
    with tempfile.TemporaryDirectory() as folder:
        switch = Switch(Path(folder)) if comm.rank == 0 else None
        port = shared_port(switch.control if switch else 0)
        os.environ.update(WEFT_SML_CONTROLLER_IP="127.0.0.1", WEFT_SML_CONTROLLER_PORT=str(port))
        dist.init_process_group("sml")
        yield switch
        if not request.session.testsfailed:  # after a failure the ranks are out of step, and conftest ends the job
            dist.barrier()
            dist.destroy_process_group()
            weft.world().barrier()
        if switch:
            switch.kill()
