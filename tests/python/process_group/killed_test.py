"""A rank is killed during a collective: every other rank raises an exception that names it, and exits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jobs
import pytest

PROGRAM = """
import os, signal, sys, time
from datetime import timedelta
import torch.distributed as dist

dist.init_process_group("weft", timeout=timedelta(seconds=60))
rank = dist.get_rank()
x = torch.ones({elements})
dist.barrier()
start = time.monotonic()
try:
    for i in range(100000):
        if rank == 1 and i == 5:
            work = dist.all_reduce(x, async_op=True)
            os.kill(os.getpid(), signal.SIGKILL)
        {call}
except RuntimeError as error:
    print(f"[{{rank}}] raised after {{time.monotonic() - start:.1f}} s: {{error}}", flush=True)
    sys.exit(3)
"""
CALLS = {
    "sync": "dist.all_reduce(x)",
    "work": "dist.all_reduce(x, async_op=True).wait()",
    "future": "dist.all_reduce(x, async_op=True).get_future().wait()",  # like DDP: only the progress thread checks
}


@pytest.mark.parametrize("elements", [16, 4 << 20])
@pytest.mark.parametrize("call", CALLS)
def test_other_ranks_name_the_killed_rank(call: str, elements: int, tmp_path: Path) -> None:
    status, text, seconds = jobs.run(tmp_path, PROGRAM.format(elements=elements, call=CALLS[call]), ranks=3)
    assert status != 0
    for rank in (0, 2):
        raised = next((line for line in text.splitlines() if line.startswith(f"[{rank}] raised")), "")
        assert "all_reduce" in raised and "rank 1 failed" in raised, text
    assert seconds < 60, "only the timeout ended the job"
    left = subprocess.run(["pgrep", "-f", str(tmp_path / "job.py")], capture_output=True, text=True, check=False)
    assert left.stdout == ""
