"""Failures of a torch.distributed group: absent, exiting and disagreeing ranks. Each test runs a separate job."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import jobs
import pytest
from process_group.default_group import BACKEND, free_port, not_gloo

# The start of each job; `start` is init_process_group.
PREAMBLE = """
import time
from datetime import timedelta
import torch.distributed as dist
from process_group.default_group import start

def attempt(run):
    start_time = time.monotonic()
    try:
        run()
        print(f"[{rank}] nothing happened", flush=True)
    except RuntimeError as error:
        print(f"[{rank}] after {time.monotonic() - start_time:.1f} s: {' '.join(str(error).split())}", flush=True)

def limit(group):  # a short timeout, after all ranks have met
    dist.barrier(group)
    group._get_backend(torch.device("cpu")).set_timeout(timedelta(milliseconds=500))
    return group

def store():
    return dist.distributed_c10d._get_default_store()

def end():
    store().set("the end", "")

def stay_away():  # until another rank calls end()
    store().wait(["the end"], timedelta(minutes=5))

rank, size = weft.world().rank, weft.world().size
"""


def run(path: Path, program: str, ranks: int = 2, **environment: str) -> tuple[int, str, float]:
    here = str(Path(__file__).parents[1])
    return jobs.run(path, PREAMBLE + program, ranks, PYTHONPATH=here, **environment)


def told(text: str, rank: int) -> tuple[float, str]:
    """Returns the time and the text of the exception on a rank."""
    line = re.search(rf"\[{rank}\] after ([\d.]+) s: (.*)", text)
    assert line, text
    return float(line[1]), line[2]


CALLS = {
    "all_reduce": "dist.all_reduce(torch.ones(3), group=group)",
    "all_reduce of much": "dist.all_reduce(torch.ones(1 << 20), group=group)",
    "broadcast": "dist.broadcast(torch.ones(1 << 20), 1, group=group)",
    "all_gather": "dist.all_gather([torch.ones(3) for _ in range(size)], torch.ones(3), group=group)",
    "reduce_scatter": "dist.reduce_scatter_single(torch.ones(3), torch.ones(3 * size), group=group)",
    "all_to_all": "dist.all_to_all_single(torch.ones(size), torch.ones(size), group=group)",
    "barrier": "dist.barrier(group=group)",
    "recv": "dist.recv(torch.ones(3), 1, group=group)",
}


def test_timeout_names_the_operation(tmp_path: Path) -> None:
    """Each operation has its own group, which is unusable afterwards; the world remains usable."""
    attempts = "".join(f"    attempt(lambda group=groups[{i}]: {call})\n" for i, call in enumerate(CALLS.values()))
    program = f"""
start()
groups = [limit(dist.new_group()) for _ in range({len(CALLS)})]
if rank == 0:
{attempts}
    if dist.get_backend() == "weft":  # a failed group reports the original failure
        attempt(lambda: dist.broadcast(torch.ones(3), 0, group=groups[0]))
x = torch.ones(1)
dist.all_reduce(x)
print("sum", x.item(), flush=True)
"""
    _, text, _ = run(tmp_path, program)
    attempted = re.findall(r"\[0\] after ([\d.]+) s: (.*)", text)
    if BACKEND != "gloo":
        _, again = attempted.pop()
        assert "broadcast" not in again and "all_reduce" in again, text
    assert len(attempted) == len(CALLS), text
    for name, (when, what) in zip(CALLS, attempted, strict=True):
        assert 0.4 < float(when) < 60
        assert BACKEND == "gloo" or (name.split()[0] in what and re.search(r"(?i)timeout|timed out", what)), what
    assert text.count("sum 2.0") == 2


def test_failure_reaches_every_other_rank(tmp_path: Path) -> None:
    program = """
start()
limit(dist.group.WORLD)
if rank != 1:
    attempt(lambda: dist.all_reduce(torch.ones(3)))
    store().set(f"told {rank}", "")
else:
    store().wait([f"told {other}" for other in (0, 2, 3)], timedelta(minutes=5))
"""
    _, text, _ = run(tmp_path, program, ranks=4)
    for rank in (0, 2, 3):
        _, what = told(text, rank)
        assert BACKEND == "gloo" or "all_reduce" in what


def test_timeout_is_raised_by_work_and_future(tmp_path: Path) -> None:
    program = """
start()
short = limit(dist.new_group())
if rank == 0:
    work = dist.all_reduce(torch.ones(3), group=short, async_op=True)
    attempt(work.wait)
    attempt(work.get_future().wait)
    print("completed", work.is_completed(), "exception", work.exception() is not None, flush=True)
    if dist.get_backend() == "weft":
        attempt(lambda: dist.barrier(timeout=timedelta(milliseconds=500)))  # a timeout of the call
    end()
else:
    stay_away()
"""
    _, text, _ = run(tmp_path, program)
    lines = re.findall(r"\[0\] after ([\d.]+) s: (.*)", text)
    assert "nothing happened" not in text
    if BACKEND == "gloo":
        assert len(lines) == 2, text
        return
    assert "completed True exception True" in text
    first, second, (when, what) = lines
    assert "all_reduce" in first[1] and "all_reduce" in second[1]
    assert float(when) < 60 and "barrier" in what  # the timeout of the group is half an hour


def test_monitored_barrier_names_missing_ranks(tmp_path: Path) -> None:
    """Uses the method of the group, because torch.distributed.monitored_barrier accepts only the name gloo."""
    program = """
start()
limit = timedelta(seconds=1)
groups = [dist.group.WORLD, dist.new_group()]
for group in groups:
    group.monitored_barrier(timedelta(minutes=1))
if rank == 0:
    for wait_all_ranks, group in enumerate(groups):
        attempt(lambda: group.monitored_barrier(limit, wait_all_ranks=bool(wait_all_ranks)))
    end()
else:
    stay_away()
"""
    _, text, _ = run(tmp_path, program, ranks=3)
    first, everyone = re.findall(r"\[0\] after [\d.]+ s: (.*)", text)
    assert re.search(r"(?i)monitored.?barrier", first) and re.search(r"(?i)rank 1\b", first), text
    assert re.search(r"(?i)monitored.?barrier", everyone) and re.search(r"(?i)ranks? 1, 2\b", everyone), text


@not_gloo
def test_monitored_barrier_result_reaches_all_ranks(tmp_path: Path) -> None:
    """Regression: ranks that arrived early timed out before rank 0, and late ranks never got its result."""
    program = """
start()
group = dist.group.WORLD
group.monitored_barrier(timedelta(minutes=1))
if rank == 0:
    time.sleep(1.5)
if rank == 1:
    stay_away()
attempt(lambda: group.monitored_barrier(timedelta(seconds=3)))
if rank == 0:
    end()
group.monitored_barrier(timedelta(minutes=1))
print("met again", flush=True)
"""
    _, text, _ = run(tmp_path, program, ranks=3)
    assert re.search("Rank 1 failed to pass monitoredBarrier", told(text, 0)[1]), text
    for rank in (1, 2):
        said = f"Rank {rank} successfully reached monitoredBarrier.*not all ranks arrived in time"
        assert re.search(said, told(text, rank)[1]), text
    assert text.count("met again") == 3, text


@pytest.mark.parametrize("ranks", [1, 3])
def test_exits_without_destroying_groups(ranks: int, tmp_path: Path) -> None:
    program = """
start()
sub = dist.new_group()
dist.all_reduce(torch.ones(1000), group=sub, async_op=True)
dist.all_reduce(torch.ones(1))
print("end", flush=True)
"""
    status, text, seconds = run(tmp_path, program, ranks)
    assert status == 0 and text.count("end") == ranks and seconds < 60, text


def test_group_can_be_destroyed_and_recreated(tmp_path: Path) -> None:
    program = """
for _ in range(3):
    start()
    x = torch.ones(1)
    dist.all_reduce(x)
    dist.destroy_process_group()
    print("sum", x.item(), flush=True)
try:
    dist.all_reduce(torch.ones(1))
except ValueError as error:
    print("told", error, flush=True)
"""
    status, text, _ = run(tmp_path, program)
    assert status == 0 and text.count("sum 2.0") == 6, text
    assert text.count("told Default process group has not been initialized") == 2, text


def test_torch_finds_mismatches_in_debug_mode(tmp_path: Path) -> None:
    program = """
start(timeout=timedelta(seconds=20))
one, two = dist.new_group(), dist.new_group()
dist.barrier()
attempt(lambda: dist.all_reduce(torch.ones(3), group=one) if rank == 0 else dist.broadcast(torch.ones(3), 0, group=one))
attempt(lambda: dist.all_reduce(torch.ones(3 + rank), group=two))
"""
    _, text, _ = run(tmp_path, program, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    for rank in range(2):
        told = re.findall(rf"\[{rank}\] after [\d.]+ s: (.*)", text)
        assert len(told) == 2, text
        assert all(re.search(r"Detected mismatch between collectives on ranks|shapes", what) for what in told), text


@not_gloo
def test_messages_are_not_mismatches_in_debug_mode(tmp_path: Path) -> None:
    """Only two of the ranks take part in them."""
    program = """
start(timeout=timedelta(seconds=20))
if rank < 2:
    dist.batch_isend_irecv([dist.P2POp(dist.irecv if rank else dist.isend, torch.ones(1), 1 - rank)])[0].wait()
x = torch.ones(1)
dist.all_reduce(x)
print("sum", x.item(), flush=True)
"""
    status, text, _ = run(tmp_path, program, ranks=3, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    assert status == 0 and text.count("sum 3.0") == 3, text


def start_without_mpi(**variables: str) -> subprocess.Popen[str]:
    program = "import weft, torch.distributed as dist; dist.init_process_group('weft')"
    environment = {**jobs.outside_of_any_job(), **variables}
    return subprocess.Popen([sys.executable, "-c", program], env=environment, stderr=subprocess.PIPE, text=True)


@not_gloo
def test_start_without_mpirun_raises() -> None:
    """torchrun sets all variables that torch's store needs, so the backend must raise; the third process has none."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = [*(start_without_mpi(RANK=str(rank), **shared) for rank in range(2)), start_without_mpi()]
    for process in processes:
        _, text = process.communicate(timeout=100)
        assert process.returncode != 0 and "mpirun -n" in text, text


@not_gloo
def test_new_group_waits_for_a_late_rank(tmp_path: Path) -> None:
    """The timeout of the group counts, not WEFT_TIMEOUT."""
    program = """
start()
dist.barrier()
if rank == 0:
    time.sleep(2)
group = dist.new_group([0, 1])
x = torch.ones(1)
dist.all_reduce(x, group=group)
print("sum", x.item(), flush=True)
"""
    status, text, _ = run(tmp_path, program, WEFT_TIMEOUT="1")
    assert status == 0 and text.count("sum 2.0") == 2, text
    assert "aborting" not in text and "all ranks had entered" not in text


@not_gloo
def test_new_group_times_out_on_all_ranks(tmp_path: Path) -> None:
    program = """
start()
dist.barrier()
def make():
    dist.new_group([0, 1, 2], timeout=timedelta(seconds=1))
if rank == 0:
    store().wait(["given up 1", "given up 2"], timedelta(minutes=5))
    attempt(make)
else:
    attempt(make)
    store().set(f"given up {rank}", "")
group = dist.new_group([0, 1, 2])
x = torch.ones(1)
dist.all_reduce(x, group=group)
print("sum", x.item(), flush=True)
"""
    status, text, _ = run(tmp_path, program, ranks=3)
    assert status == 0 and text.count("sum 3.0") == 3, text
    reasons = [told(text, rank)[1] for rank in range(3)]
    assert re.search(r"was not created: rank [12] waited 1\.0+ s for ranks? 0.*, which did not", reasons[0]), reasons
    assert len(set(reasons)) == 1
