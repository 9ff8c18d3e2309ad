"""Waiting for a switch or other ranks: warnings, errors with the right cause, and sums that continue."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jobs
import pytest
from sml.switches import PROGRAM, Switch


@pytest.fixture
def switch(tmp_path: Path):
    made = Switch(tmp_path)
    yield made
    made.kill()


NEVER = """
from datetime import timedelta
import torch.distributed as dist
dist.init_process_group("sml")
dist.all_reduce(torch.ones(3))
dist.barrier()
if dist.get_rank() == 0:
    dist.group.WORLD._get_backend(torch.device("cpu")).set_timeout(timedelta(seconds=2))
    try:
        dist.all_reduce(torch.ones(10))
    except RuntimeError as error:
        print("told", flush=True)
weft.world().barrier()
"""


def test_waiting_for_a_missing_rank_warns(tmp_path: Path, switch: Switch) -> None:
    _, text, _ = jobs.run(tmp_path, NEVER, **switch.environment(), WEFT_WARN="1")
    said = [line for line in text.splitlines() if line.startswith("weft: rank 0 has waited") and "switch" in line]
    assert len(said) == 1, text
    for word in ("all_reduce number 2", f"127.0.0.1:{switch.control}", "0 of 10 elements"):
        assert word in said[0], text


GIVES_UP = """
from datetime import timedelta
import torch.distributed as dist
dist.init_process_group("sml")
rank = dist.get_rank()
options = dist.AllreduceOptions()
options.timeout = timedelta(seconds=2 if rank == 0 else 100)
options.asyncOp = False
if rank < 2:
    try:
        dist.group.WORLD.allreduce([torch.ones(10)], options).wait()
    except RuntimeError as error:
        print(f"[{rank}] told: {str(error).splitlines()[0]}", flush=True)
weft.world().barrier()
y = torch.ones(3, dtype=torch.float64)
dist.all_reduce(y)
assert y[0] == 3
"""


def test_an_aborting_rank_notifies_waiting_ranks(tmp_path: Path, switch: Switch) -> None:
    status, text, _ = jobs.run(tmp_path, GIVES_UP, ranks=3, **switch.environment())
    told = {line[:3]: line for line in text.splitlines() if "] told: " in line}
    assert status == 0 and set(told) == {"[0]", "[1]"}, text
    assert "rank 0 aborted" not in told["[0]"] and "timed out after 2" in told["[0]"], text
    assert "rank 0 aborted" in told["[1]"] and "timed out after 2" in told["[1]"], text


AWAY = """
import time
from datetime import timedelta
import torch.distributed as dist
dist.init_process_group("sml")
rank = dist.get_rank()
dist.all_reduce(torch.ones(10))
dist.barrier()
dist.group.WORLD._get_backend(torch.device("cpu")).set_timeout(timedelta(seconds=2))
print("ready", flush=True)
try:
    while True: dist.all_reduce(torch.ones(10))
except RuntimeError as error:
    print(f"[{rank}] told: {str(error).splitlines()[0]}", flush=True)
weft.world().barrier()
"""


def test_a_timeout_is_reported_while_the_switch_is_down(tmp_path: Path, switch: Switch) -> None:
    job = jobs.start_until_ready(tmp_path, AWAY, **switch.environment(), WEFT_SML_SETUP_TIMEOUT_S="100")
    switch.kill()
    text, _ = job.communicate(timeout=120)
    assert text.count("told: ") == 2 and text.count("timed out after 2") >= 2, text
    assert "no longer knows" not in text, text


PENDING = """
import os, signal, sys
from datetime import timedelta
import torch, torch.distributed as dist
end, gone, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
dist.init_process_group("sml", timeout=timedelta(minutes=30))
dist.all_reduce(torch.ones(10))
dist.barrier()
if dist.get_rank() == gone:
    os.kill(os.getpid(), getattr(signal, how))
work = dist.all_reduce(torch.ones(10), async_op=True)
if end == "destroy":
    dist.destroy_process_group()
    try:
        work.wait()
    except RuntimeError as error:
        print("told:", str(error).splitlines()[0], flush=True)
"""


def end_without_rank(gone: int, how: str, end: str, script: Path, switch: Switch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    environment = {
        **jobs.outside_of_any_job(),
        **switch.environment(),
        "WEFT_SML_FALLBACK": "gloo",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), end, str(gone), how],
            env={**environment, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    left = ranks[1 - gone]
    try:
        text, _ = left.communicate(timeout=60)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert left.returncode == 0, text
    assert end == "exit" or "destroyed before all of its sums were complete" in text, text


def test_a_pending_sum_does_not_delay_the_end_if_a_rank_is_gone(tmp_path: Path, switch: Switch) -> None:
    """Rank 0 hosts the store, which does not answer if rank 0 is stopped."""
    script = tmp_path / "job.py"
    script.write_text(PENDING)
    cases = [
        (1, "SIGSTOP", "exit"),
        (0, "SIGSTOP", "destroy"),
        (0, "SIGSTOP", "exit"),
        (0, "SIGKILL", "destroy"),
    ]
    with ThreadPoolExecutor() as pool:
        for ended in [pool.submit(end_without_rank, *case, script, switch) for case in cases]:
            ended.result()


LATE = """
import time
import torch.distributed as dist
dist.init_process_group("sml")
rank = dist.get_rank()
dist.all_reduce(torch.ones(10))
dist.barrier()
if rank == 1:
    time.sleep(1)
x = torch.ones(100_000)
work = dist.all_reduce(x, async_op=True)
dist.destroy_process_group()
work.wait()
assert (x == 2).all()
print("complete", flush=True)
"""


def test_destroying_a_group_completes_pending_sums_of_slow_ranks(tmp_path: Path, switch: Switch) -> None:
    status, text, _ = jobs.run(tmp_path, LATE, **switch.environment())
    assert status == 0 and text.count("complete") == 2, text


COMES_BACK = """
import os, time, urllib.request
import torch.distributed as dist
def assigned():
    page = urllib.request.urlopen("http://127.0.0.1:{port}/metrics").read().decode()
    return [line for line in page.splitlines() if line.startswith("weft_switch_slots_assigned ")][0].split()[1]
for mode in ("extended", "classic"):
    os.environ["WEFT_SML_MODE"] = mode
    dist.init_process_group("sml")
    for _ in range(2):
        x = torch.full((5000,), float(dist.get_rank() + 1))
        dist.all_reduce(x)
        assert (x == 3).all(), x
        dist.barrier()
        while assigned() != "0": time.sleep(0.05)
        dist.barrier()
    x = torch.ones(10)
    dist.all_reduce(x)
    assert (x == 2).all()
    print(mode, "rejoins", weft.sml.statistics()["switch.rejoins"], flush=True)
    dist.barrier()
    dist.destroy_process_group()
"""


def test_live_sessions_rejoin_after_eviction(tmp_path: Path) -> None:
    switch = Switch(tmp_path, "--idle", "1")
    status, text, _ = jobs.run(tmp_path, COMES_BACK.replace("{port}", str(switch.http)), **switch.environment())
    switch.kill()
    assert status == 0, text
    for mode in ("extended", "classic"):
        rejoins = [int(count) for count in re.findall(rf"{mode} rejoins (\d+)", text)]
        # The job waits twice until its session ends. On a busy machine a second may also pass before the first sum.
        assert len(rejoins) == 2 and min(rejoins) >= 2, text


AGAIN = """
import torch.distributed as dist
for _ in range(3):
    dist.init_process_group("sml")
    x = torch.ones(300)
    dist.all_reduce(x)
    assert (x == 2).all()
    dist.barrier()
    dist.destroy_process_group()
"""


def test_classic_sessions_on_the_same_ports_are_distinguished(tmp_path: Path, switch: Switch) -> None:
    """SwitchML's packets carry no session, so the session number determines the first operation number."""
    status, text, _ = jobs.run(tmp_path, AGAIN, **switch.environment(), WEFT_SML_MODE="classic")
    found = re.findall(r"session (\w+) rank .* operations from (\d+)", switch.log.read_text())
    assert status == 0 and len(set(found)) == 3, text + switch.log.read_text()
    assert all(int(session, 16) % 256 == int(first) for session, first in found), found


FALLBACK = """
import torch, torch.distributed as dist, weft
dist.init_process_group("sml")
x, y = torch.ones(3), torch.ones(3, dtype=torch.float64)
dist.all_reduce(x)
dist.all_reduce(y)
assert x[0] == 2 and y[0] == 2, (x, y)
print("both ways", flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def test_embedded_workers_ignore_the_surrounding_job(tmp_path: Path) -> None:
    """Like a shell started by srun, whose variables describe a job of one rank."""
    script = tmp_path / "job.py"
    script.write_text(FALLBACK)
    step = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "PMI_RANK": "0", "PMI_SIZE": "1"}
    job = subprocess.run(
        [str(PROGRAM), "--embedded", "2", "--http", "off", "--", sys.executable, str(script)],
        env={**jobs.outside_of_any_job(), **step},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert job.returncode == 0 and job.stdout.count("both ways") == 2, job.stdout + job.stderr


def test_runs_under_torchrun(tmp_path: Path, switch: Switch) -> None:
    script = tmp_path / "job.py"
    script.write_text(FALLBACK)
    job = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)],
        env={**jobs.outside_of_any_job(), **switch.environment()},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert job.returncode == 0 and job.stdout.count("both ways") == 2, job.stdout + job.stderr
