"""Failures between workers and a switch: every rank raises an error that names the remedy, and no rank hangs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import jobs
import pytest
import torch
import torch.distributed as dist
from sml.switches import PROGRAM, Switch, write_keys
from weft.tools import sml_demo

import weft
from weft import _bindings

UNIT = Path(__file__).parents[3] / "apps" / "weft-switch" / "weft-switch.service"
RMEM_MAX = Path("/proc/sys/net/core/rmem_max")
KEY, OTHER_KEY = "00" * 31 + "01", "00" * 31 + "02"

JOIN = """
import os, sys
from datetime import timedelta
import torch.distributed as dist

def attempt(name, **variables):
    for old in [key for key in os.environ if key.startswith("WEFT_SML_")]:
        del os.environ[old]
    os.environ.update(variables)
    try:
        dist.init_process_group("sml", timeout=timedelta(seconds=40))
        x = torch.ones(1000)
        dist.all_reduce(x)
        assert (x == dist.get_world_size()).all()
        dist.barrier()
        dist.destroy_process_group()
        print(f"[{rank}] {name}: fine", flush=True)
    except RuntimeError as error:
        print(f"[{rank}] {name}: {str(error).splitlines()[0]}", flush=True)

rank = weft.world().rank
"""


def answer(text: str, rank: int, name: str) -> str:
    return next((line for line in text.splitlines() if line.startswith(f"[{rank}] {name}: ")), text)


@pytest.fixture
def switch(tmp_path: Path):
    made = Switch(tmp_path)
    yield made
    made.kill()


def test_wrong_configurations_raise_on_all_ranks(tmp_path: Path, switch: Switch) -> None:
    where = switch.environment()
    program = f"""
attempt("nothing")
attempt("unreachable", WEFT_SML_CONTROLLER_IP="127.0.0.1", WEFT_SML_CONTROLLER_PORT="1", WEFT_SML_SETUP_TIMEOUT_S="1")
attempt("one wrong", **{where}, **({{"WEFT_SML_PACKET_NUMEL": "7"}} if rank == 1 else {{}}))
attempt("different", **{where}, **({{"WEFT_SML_EXACT": "true"}} if rank == 1 else {{}}))
attempt("dpdk", **{where}, WEFT_SML_BACKEND="dpdk")
attempt("one dummy", **{where}, **({{"WEFT_SML_BACKEND": "dummy"}} if rank == 1 else {{}}))
attempt("dummy of no size", WEFT_SML_BACKEND="dummy", WEFT_SML_MODE="classic", WEFT_SML_PACKET_NUMEL="128")
attempt("no file", WEFT_SML_CONFIG="/missing.cfg")
attempt("right", **{where})
"""
    _, text, _ = jobs.run(tmp_path, JOIN + program)
    for rank in (0, 1):
        assert "no switch configured" in answer(text, rank, "nothing")
        assert "127.0.0.1:1" in answer(text, rank, "unreachable")
        assert "check that weft-switch runs there" in answer(text, rank, "unreachable")
        assert "rank 1" in answer(text, rank, "one wrong") and "WEFT_SML_PACKET_NUMEL" in answer(
            text, rank, "one wrong"
        )
        assert "configuration differs" in answer(text, rank, "different")
        assert "exact=1" in answer(text, rank, "different")
        assert "needs a build with DPDK" in answer(text, rank, "dpdk")
        assert "backend=dummy" in answer(text, rank, "one dummy")
        assert "128" in answer(text, rank, "dummy of no size")
        assert "cannot read the configuration file '/missing.cfg'" in answer(text, rank, "no file")
        assert "fine" in answer(text, rank, "right")


def test_dummy_needs_no_switch(tmp_path: Path) -> None:
    program = """
        import torch.distributed as dist
        dist.init_process_group("sml")
        rank = dist.get_rank()
        for dtype in (torch.float32, torch.bfloat16, torch.int32):
            x = torch.full((1000,), rank + 1, dtype=dtype)
            dist.all_reduce(x)
            assert (x == 3 * (rank + 1)).all(), x
        y = torch.tensor([float(rank)], dtype=torch.float64)
        dist.all_reduce(y)  # through the fallback
        assert y.item() == 3
        print("seen", weft.sml.statistics()["switch.all_reduce"], flush=True)
        dist.destroy_process_group()
        """
    status, text, _ = jobs.run(tmp_path, program, 3, WEFT_SML_BACKEND="dummy")
    assert status == 0 and text.count("seen 3") == 3, text
    assert text.count("backend = dummy sends nothing") == 1, text


def test_only_the_right_key_is_admitted(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.yaml", training=KEY)
    wrong = write_keys(tmp_path / "wrong.yaml", training=OTHER_KEY)
    switch = Switch(tmp_path, keys=keys)
    where = switch.environment() | {"WEFT_SML_JOB": "training"}
    program = f"""
attempt("wrong", **{where}, WEFT_SML_KEYS="{wrong}")
attempt("none", **{where})
attempt("right", **{where}, WEFT_SML_KEYS="{keys}")
"""
    _, text, _ = jobs.run(tmp_path, JOIN + program)
    for rank in (0, 1):
        assert "wrong key" in answer(text, rank, "wrong")
        assert "WEFT_SML_KEYS" in answer(text, rank, "none")
        assert "fine" in answer(text, rank, "right")
    assert switch.counted("wrong_key") == 2 and switch.counted("admitted") == 2
    switch.kill()


RESTART = """
import os
from pathlib import Path
import torch.distributed as dist
dist.init_process_group("sml")
rank, size = dist.get_rank(), dist.get_world_size()
folder, step, over = Path(os.environ["STEPS"]), 0, False
x = torch.arange(300_000, dtype=torch.int32)
while not over:
    y = x * (rank + 1) + step
    y[0] = rank == 0 and (folder / "over").exists()  # all ranks must end after the same sum
    dist.all_reduce(y)
    over = bool(y[0])
    assert torch.equal(y[1:], (x * (size * (size + 1) // 2) + size * step)[1:]), step
    step += 1
    if rank == 0:
        (folder / f"step {step}").touch()
print("rejoins", weft.sml.statistics()["switch.rejoins"], flush=True)
dist.destroy_process_group()
print(f"[{rank}] right", flush=True)
"""


def wait_for_ten_steps(folder: Path, job: subprocess.Popen[str]) -> None:
    """Waits until ten more steps are complete."""
    before = len(list(folder.glob("step *")))
    while len(list(folder.glob("step *"))) < before + 10 and job.poll() is None:
        time.sleep(0.005)


@pytest.mark.parametrize(("ranks", "mode", "by_key"), [(2, "classic", False), (3, "extended", True)])
def test_job_survives_restarts_of_the_switch(ranks: int, mode: str, by_key: bool, tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.yaml", training=KEY) if by_key else None
    switch = Switch(tmp_path, keys=keys)
    environment = {**switch.environment(), "STEPS": str(tmp_path), "WEFT_SML_MODE": mode}
    if by_key:
        environment |= {"WEFT_SML_JOB": "training", "WEFT_SML_KEYS": str(keys)}
    job = jobs.begin(tmp_path, RESTART, ranks, **environment)
    for _ in range(2):
        wait_for_ten_steps(tmp_path, job)
        switch.kill()
        time.sleep(0.3)
        switch.start()
    (tmp_path / "over").touch()  # no rank ends before this
    text, _ = job.communicate(timeout=120)
    switch.kill()
    assert job.returncode == 0, text
    for rank in range(ranks):
        assert f"[{rank}] right" in text, text
    rejoins = [int(count) for count in re.findall(r"rejoins (\d+)", text)]
    assert len(rejoins) == ranks and min(rejoins) >= 2, text


AGAIN = """
import os, sys, time
from datetime import timedelta
import torch.distributed as dist

comm = weft.world()
rank, size = comm.rank, comm.size
hosted = dist.TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False) if rank == 0 else None
port = int(comm.broadcast(torch.tensor(hosted.port if hosted else 0), root=0).item())
store = hosted or dist.TCPStore("127.0.0.1", port, size, is_master=False)
for number in range(8):
    os.environ["WEFT_SML_PACKET_NUMEL"] = "7" if number == 0 and rank == 0 else "256"
    if rank == number % size:
        time.sleep(0.3)  # meanwhile the store contains only keys of earlier groups
    try:
        dist.init_process_group("sml", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=20))
        x = torch.full((1000,), float(number))
        dist.all_reduce(x)
        assert (x == size * number).all()
        dist.destroy_process_group()
        print(f"[{rank}] group {number}: fine", flush=True)
    except RuntimeError as error:
        print(f"[{rank}] group {number}: {str(error).splitlines()[0]}", flush=True)
        if number > 0: os._exit(1)
comm.barrier()
"""


def test_successive_groups_can_use_one_store(tmp_path: Path, switch: Switch) -> None:
    """torch gives each group the same name and therefore the same keys in the store."""
    _, text, _ = jobs.run(tmp_path, AGAIN, **switch.environment())
    for rank in (0, 1):
        assert "rank 0" in answer(text, rank, "group 0") and "PACKET_NUMEL" in answer(text, rank, "group 0"), text
        for number in range(1, 8):
            assert "fine" in answer(text, rank, f"group {number}"), text


def test_ranks_that_missed_each_other_meet_at_the_next_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks are threads that share a store with the keys of all attempts."""
    monkeypatch.setenv("WEFT_SML_CONTROLLER_IP", "127.0.0.1")
    store = dist.HashStore()

    def come(rank: int, usual: str, timeout: float) -> str:
        options = dist.distributed_c10d._DistributedBackendOptions()
        options.store, options.group_rank, options.group_size = store, rank, 2
        options.timeout = timedelta(seconds=timeout)
        try:
            return str(_bindings.load().sml_fallback(options, usual))
        except RuntimeError as error:
            return str(error)

    def come_together(*usual: str) -> list[str]:
        with ThreadPoolExecutor() as pool:
            return list(pool.map(come, (0, 1), usual, (60, 60)))

    for alone, times in ((0, 1), (1, 3), (0, 2)):
        for _ in range(times):
            assert "timeout" in come(alone, "nothing", 0.2)  # not the other rank's earlier value
        assert come_together("mpi", "mpi") == ["mpi", "mpi"]
        assert all("rank 1 has 'fallback=gloo'" in text for text in come_together("mpi", "gloo"))
        assert come_together("gloo", "gloo") == ["gloo", "gloo"]


GONE = """
import time
from datetime import timedelta
import torch.distributed as dist
dist.init_process_group("sml", timeout=timedelta(seconds=40))
rank = dist.get_rank()
x = torch.ones(100_000)
dist.all_reduce(x)
dist.barrier()
if rank == 0: print("ready", flush=True)
try:
    while True: dist.all_reduce(x.fill_(1))
except RuntimeError as error:
    print(f"[{rank}] told: {str(error).splitlines()[0]}", flush=True)
try:
    dist.all_reduce(x)
except RuntimeError as error:
    print(f"[{rank}] again: {str(error).splitlines()[0]}", flush=True)
y = torch.full((3,), float(rank), dtype=torch.float64)
dist.all_reduce(y)  # the fallback does not need the switch
assert y[0] == 1
print(f"[{rank}] continues", flush=True)
"""


def test_group_fails_if_the_switch_does_not_restart(tmp_path: Path, switch: Switch) -> None:
    job = jobs.start_until_ready(tmp_path, GONE, **switch.environment(), WEFT_SML_SETUP_TIMEOUT_S="1")
    switch.kill()
    text, _ = job.communicate(timeout=120)
    for rank in (0, 1):
        assert "check that weft-switch runs there" in answer(text, rank, "told"), text
        assert f"[{rank}] again: " in text and "no longer usable" in text, text
        assert f"[{rank}] continues" in text, text


LATE = """
from datetime import timedelta
import torch.distributed as dist
dist.init_process_group("sml")
rank = dist.get_rank()
dist.group.WORLD._get_backend(torch.device("cpu")).set_timeout(timedelta(seconds=1))
try:
    if rank == 0: dist.all_reduce(torch.ones(10))
except RuntimeError as error:
    print(f"[{rank}] told: {str(error).splitlines()[0]}", flush=True)
weft.world().barrier()
"""


def test_timeout_names_the_operation_if_a_rank_does_not_call_it(tmp_path: Path, switch: Switch) -> None:
    _, text, _ = jobs.run(tmp_path, LATE, **switch.environment())
    assert "all_reduce number 1" in answer(text, 0, "told") and "timed out" in answer(text, 0, "told"), text


DIFFERENT = """
import torch.distributed as dist
from datetime import timedelta

def attempt(name, tensor, op):
    dist.init_process_group("sml", timeout=timedelta(seconds=60))
    dist.all_reduce(torch.ones(5))
    try:
        dist.all_reduce(tensor, op)
        print(f"[{rank}] {name}: no error, {tensor[0].item()}", flush=True)
    except RuntimeError as error:
        print(f"[{rank}] {name}: {str(error).splitlines()[0]}", flush=True)
    dist.destroy_process_group()
    weft.world().barrier()

rank = weft.world().rank
SUM, AVG = dist.ReduceOp.SUM, dist.ReduceOp.AVG
attempt("reductions", torch.ones(300), AVG if rank == 1 else SUM)
dtype = torch.bfloat16 if rank == 1 else torch.float32
attempt("mean and sum", torch.ones(300, dtype=dtype), AVG if rank == 1 else SUM)
attempt("types", torch.ones(300, dtype=dtype), AVG)
attempt("lengths", torch.ones(300 + rank), SUM)
attempt("nothing", torch.ones(300), AVG)
"""


def test_different_reductions_types_and_lengths_raise_on_all_ranks(tmp_path: Path, switch: Switch) -> None:
    _, text, _ = jobs.run(tmp_path, DIFFERENT, **switch.environment())
    for rank in (0, 1):
        for name in ("reductions", "mean and sum", "types", "lengths"):
            assert "different types, lengths or reductions" in answer(text, rank, name), text
        assert "no error, 1.0" in answer(text, rank, "nothing"), text


EXACT = """
import torch.distributed as dist
dist.init_process_group("sml")
dist.all_reduce(torch.ones(10))
dist.all_reduce(torch.ones(10, dtype=torch.int32))
print(weft.sml.statistics(), flush=True)
"""


def test_exact_sends_floats_to_the_fallback(tmp_path: Path, switch: Switch) -> None:
    status, text, _ = jobs.run(tmp_path, EXACT, **switch.environment(), WEFT_SML_EXACT="true")
    assert status == 0 and "'fallback.all_reduce.exact': 1" in text and "'switch.all_reduce': 1" in text, text


def test_the_demo_gives_every_worker_the_same_number_of_images() -> None:
    batches = [torch.arange(60), torch.arange(50), torch.arange(7), torch.arange(6)]
    assert [len(batch) for batch in sml_demo.even_batches(batches, 7)] == [56, 49, 7]
    with pytest.raises(SystemExit):
        sml_demo.parse(["--workers=7", "--images=6"])


def test_the_demo_trains_over_gloo_and_the_switch() -> None:
    """Workers without MPI, with torch and gRPC in each process; the batch does not divide by the workers."""
    command = [str(PROGRAM.parent / "weft"), "sml-demo", "--workers=3", "--batch=50", "--epochs=1", "--images=300"]
    job = subprocess.run(
        command, env=jobs.outside_of_any_job(), capture_output=True, text=True, timeout=120, check=False
    )
    assert job.returncode == 0, job.stdout + job.stderr
    assert "epoch 1: loss" in job.stdout and "switch.all_reduce" in job.stdout, job.stdout + job.stderr


IMPORT = """
import torch_switchml
import torch.distributed as dist
dist.init_process_group(backend="sml")
x = torch.arange(5.0)
dist.all_reduce(x)
assert torch.equal(x, 2 * torch.arange(5.0))
print(torch_switchml.statistics()["switch.all_reduce"], "by", dist.get_backend(), flush=True)
"""


def test_importing_switchmls_plugin_registers_the_backend(tmp_path: Path, switch: Switch) -> None:
    config = tmp_path / "switchml.cfg"
    config.write_text(f"[general]\nnum_workers = 2\nbackend = udp\ncontroller_port = {switch.control}\n")
    status, text, _ = jobs.run(tmp_path, IMPORT, WEFT_SML_CONFIG=str(config))
    assert status == 0 and "1 by sml" in text, text


def test_the_switch_stops_on_sigterm(tmp_path: Path) -> None:
    switch = Switch(tmp_path)
    assert switch.page("/healthz") == "ok\n"
    assert switch.stop() == 0
    assert "SIGTERM: stopping" in switch.log.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen", "nowhere"], "'nowhere' is not a port"),
        (["--control", "99999"], "'99999' is not a port"),
        (["--jobs", "/missing.yaml"], "/missing.yaml"),
        (["--listen", "192.0.2.1:5"], "192.0.2.1:5"),
        (["--listen", "127.0.0.1:65521"], "16 UDP ports starting at 127.0.0.1:65521 exceed 65535"),
        (["--idle", "0"], "--idle"),
        (["--embedded", "2"], "needs a command"),
        (["--lisen", "1"], "--lisen"),
        (["start", "now"], "'start' is not an option"),
        (["--", "python", "train.py"], "'python' is not an option"),
        (["--jobs", ""], "--jobs needs a file"),  # an unset shell variable
        (["--jobs", "/missing.yaml", "--open"], "--open cannot be combined with --jobs"),
        (["--jobs", "/missing.yaml", "--multihomed"], "--multihomed cannot be combined with --jobs"),
        (["--embedded", "1", "--open", "--", "true"], "--open cannot be combined with --embedded"),
        (["--embedded", "1", "--multihomed", "--", "true"], "--multihomed cannot be combined with --embedded"),
        (["--embedded", "1", "--listen", "0", "--", "true"], "--listen cannot be combined with --embedded"),
        (["--embedded", "1", "--control", "50099", "--", "true"], "--control cannot be combined with --embedded"),
        (["--embedded", "1", "--http", "9099", "--", "true"], "--http cannot be combined with --embedded"),
    ],
)
def test_invalid_command_lines_are_rejected(arguments: list[str], words: str) -> None:
    job = subprocess.run(
        [str(PROGRAM), *arguments], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    assert job.returncode in (1, 2) and words in job.stdout + job.stderr, (job.returncode, job.stdout + job.stderr)


def test_version_option_prints_the_version() -> None:
    said = subprocess.run([str(PROGRAM), "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert said == f"weft-switch {weft.__version__}\n"


@pytest.mark.parametrize(("limit", "warned"), [("ulimit -Sn 256", False), ("ulimit -n 256", True)])
def test_raises_the_descriptor_limit_or_warns(limit: str, warned: bool) -> None:
    """The worker prints the limit that it inherits from the switch."""
    job = subprocess.run(
        ["sh", "-c", f'{limit} && exec "$0" --embedded 1 -- sh -c "ulimit -Sn"', str(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (int(job.stdout) == 256) == warned and (int(job.stdout) > 2 * 1024) != warned, job.stdout
    assert ("limit of 256 file descriptors" in job.stderr) == warned, job.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_systemd_unit_is_valid(tmp_path: Path) -> None:
    text = UNIT.read_text().replace("/usr/local/bin/weft-switch", str(PROGRAM))
    unit = tmp_path / "weft-switch.service"
    unit.write_text(text)
    job = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    about_it = [line for line in job.stderr.splitlines() if unit.name in line]
    assert job.returncode == 0 and not about_it, job.stderr


@pytest.mark.skipif(
    shutil.which("setpriv") is None or os.geteuid() != 0 or int(RMEM_MAX.read_text()) >= 8 << 20,
    reason="needs setpriv, root and a small net.core.rmem_max",
)
def test_warns_about_small_socket_buffers(tmp_path: Path) -> None:
    without = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"]
    embedded = [str(PROGRAM), "--embedded", "1", "--http", "off", "--", "true"]
    for command, warned in ((embedded, False), ([*without, *embedded], True)):
        job = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert ("net.core.rmem_max" in job.stderr) == warned, job.stderr


def test_idle_sessions_are_evicted(tmp_path: Path) -> None:
    switch = Switch(tmp_path, "--idle", "1")
    program = (
        "import time\nimport torch.distributed as dist\ndist.init_process_group('sml')\nwhile True: time.sleep(0.1)\n"
    )
    script = tmp_path / "job.py"
    script.write_text("import torch, weft\n" + program)
    job = subprocess.Popen(
        [str(jobs.LAUNCHER), "-n", "2", sys.executable, str(script)],
        env={**jobs.outside_of_any_job(), **switch.environment()},
    )
    while switch.metric("jobs_total") < 1:
        assert job.poll() is None
        time.sleep(0.05)
    while switch.metric("slots_assigned") > 0:  # the workers still run, but send nothing
        assert job.poll() is None
        time.sleep(0.05)
    assert "received no packets" in switch.log.read_text()
    job.terminate()
    job.wait()
    switch.kill()


def test_an_operation_may_have_a_longer_timeout_than_its_group(tmp_path: Path, switch: Switch) -> None:
    program = """
        import time, torch.distributed as dist
        from datetime import timedelta
        dist.init_process_group("sml")
        dist.group.WORLD._get_backend(torch.device("cpu")).set_timeout(timedelta(seconds=1))
        if dist.get_rank() == 1:
            time.sleep(2)
        options = dist.AllreduceOptions()
        options.timeout = timedelta(seconds=60)
        x = torch.ones(10)
        dist.group.WORLD.allreduce([x], options).wait()
        assert (x == 2).all()
        print("in time", flush=True)
        dist.destroy_process_group()
        """
    status, text, _ = jobs.run(tmp_path, program, **switch.environment())
    assert status == 0 and text.count("in time") == 2, text


def test_a_destroyed_group_releases_its_slots_immediately(tmp_path: Path, switch: Switch) -> None:
    program = f"""
        import urllib.request, torch.distributed as dist
        def sessions():
            page = urllib.request.urlopen("http://127.0.0.1:{switch.http}/metrics").read().decode()
            return page.count("weft_switch_job_slots{{")
        dist.init_process_group("sml")
        group = dist.new_group()
        dist.all_reduce(torch.ones(10), group=group)
        backend = group._get_backend(torch.device("cpu"))  # keeps a reference
        dist.barrier()
        assert sessions() == 2, sessions()
        dist.barrier()
        dist.destroy_process_group(group)
        dist.barrier()
        print("left", sessions(), flush=True)
        dist.barrier()
        dist.destroy_process_group()
        """
    status, text, _ = jobs.run(tmp_path, program, **switch.environment())
    assert status == 0 and text.count("left 1") == 2, text
