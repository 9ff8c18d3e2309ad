"""Training frameworks over weft: 2 ranks give the loss of one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jobs
import pytest
from integrations.examples import loss_of_one_process, losses_on_two_ranks
from process_group.default_group import free_port

PROGRAMS = {
    "lightning-by-name": ["lightning_ddp"],
    "lightning-by-object": ["lightning_ddp", "--strategy", "ddp"],
    "accelerate": ["accelerate_training"],
    "transformers": ["huggingface_trainer"],
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_two_ranks_give_the_loss_of_one_process(program: list[str]) -> None:
    assert losses_on_two_ranks(*program) == pytest.approx([loss_of_one_process(*program)] * 2, abs=1e-5)


ACCELERATE = """
import torch.distributed as dist
from accelerate import Accelerator, InitProcessGroupKwargs
"""


def test_accelerate_uses_mpi_if_weft_serves_the_name(tmp_path: Path) -> None:
    program = ACCELERATE + 'weft.use_as_mpi_backend(); Accelerator(cpu=True); print("backend", dist.get_backend())'
    status, text, _ = jobs.run(tmp_path, program)
    assert status == 0 and text.count("backend mpi") == 2, text


def test_accelerate_without_cpu_explains_the_option(tmp_path: Path) -> None:
    program = ACCELERATE + (
        'import weft.integrations.accelerate\nAccelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="weft")])\n'
    )
    status, text, _ = jobs.run(tmp_path, program)
    assert status != 0 and text.count("pass Accelerator(cpu=True)") == 2, text


def test_other_backends_of_accelerate_still_work(tmp_path: Path) -> None:
    program = ACCELERATE + (
        "import weft.integrations.accelerate\n"
        'Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])\n'
        'print("backend", dist.get_backend())\n'
    )
    status, text, _ = jobs.run(tmp_path, program, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    assert status == 0 and text.count("backend gloo") == 2, text


def test_a_changed_accelerate_raises() -> None:
    program = (
        "import accelerate.state; accelerate.state.PartialState._prepare_backend = lambda self: None\n"
        "import weft.integrations.accelerate"
    )
    job = subprocess.run(
        [sys.executable, "-c", program], env=jobs.outside_of_any_job(), capture_output=True, text=True, check=False
    )
    assert job.returncode != 0 and "Instead, call torch.distributed.init_process_group('weft')" in job.stderr
