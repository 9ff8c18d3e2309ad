"""Tests weft's commands, and jobs whose hosts fail, on simulated hosts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from experiment.weft_command import WEFT, toy_file, weft
from hosts.cluster import Cluster, program, requires_hosts

requires_hosts()

# Each rank writes its errors to a file, because a disconnected host cannot print.
ENDLESS = """
import os, pathlib
folder = pathlib.Path(__file__).parent
comm = weft.world()
os.dup2(os.open(folder / f"log{comm.rank}", os.O_WRONLY | os.O_CREAT), 2)
x = torch.ones(1000)
comm.all_reduce(x)
(folder / f"ready{comm.rank}").touch()
while True:
    comm.all_reduce(x)
"""


def eventually(condition: Callable[[], bool], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return condition()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A new cluster for each test: a link that was interrupted may delay the start of the next job."""
    with Cluster(2, 2) as cluster:
        yield cluster


def all_exist(folder: Path, name: str) -> Callable[[], bool]:
    return lambda: all((folder / f"{name}{rank}").exists() for rank in range(4))


def test_hosts_end_with_their_cluster() -> None:
    with Cluster(2, 1) as short_lived:
        processes = [Path(f"/proc/{short_lived.first_process(host)}") for host in range(2)]
        assert all(process.exists() for process in processes)
    assert eventually(lambda: not any(process.exists() for process in processes))


def test_doctor_counts_the_ranks_of_each_host(cluster: Cluster) -> None:
    status, output = cluster.run(WEFT, "doctor")
    assert status == 0, output
    ranks = next(line for line in output.splitlines() if line.startswith("ranks"))
    assert "4 (" in ranks and "-0: 2" in ranks and "-1: 2" in ranks
    assert "no problems found" in output


def test_training_equals_training_on_one_host(cluster: Cluster, tmp_path: Path) -> None:
    file = toy_file(tmp_path)
    status, output = cluster.run(WEFT, "train", file, "--out", tmp_path / "hosts", WEFT_DATA="")
    assert status == 0, output
    one_host = weft("train", "-n", "4", file, "--out", tmp_path / "host")
    assert one_host.returncode == 0, one_host.stderr

    def costs(run: Path) -> list[float]:
        lines = (json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())
        return [line["cost"] for line in lines if "cost" in line]

    assert costs(tmp_path / "hosts") == pytest.approx(costs(tmp_path / "host"), rel=1e-5)


def test_lost_packets_do_not_change_results(tmp_path: Path) -> None:
    sums = program(
        tmp_path,
        """
        comm = weft.world()
        for size in (1, 1000, 300_000):
            x = torch.arange(size, dtype=torch.float64) * (comm.rank + 1)
            for _ in range(5):
                torch.testing.assert_close(comm.all_reduce(x), torch.arange(size, dtype=torch.float64) * 10)
        print("correct")
        """,
    )
    with Cluster(2, 2, "--loss", "1") as lossy:
        status, output = lossy.run(*sums)
    assert status == 0 and output.count("correct") == 4, output


def test_a_short_interruption_does_not_end_the_job(cluster: Cluster, tmp_path: Path) -> None:
    sums = program(
        tmp_path,
        """
        import pathlib
        comm = weft.world()
        folder = pathlib.Path(__file__).parent
        rounds = 0
        while comm.all_reduce(torch.tensor(float((folder / "stop").exists()))) == 0:
            assert comm.all_reduce(torch.ones(1000)).eq(4).all()
            rounds += 1
            (folder / f"ready{comm.rank}").write_text(str(rounds))
        print("finished")
        """,
    )
    job = cluster.begin(*sums)
    assert eventually(all_exist(tmp_path, "ready"))
    cluster.connect(1, False)
    time.sleep(1)
    cluster.connect(1, True)
    rounds = int((tmp_path / "ready0").read_text())
    assert eventually(lambda: int((tmp_path / "ready0").read_text() or 0) > rounds + 10)
    (tmp_path / "stop").touch()
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 0 and output.count("finished") == 4, output


def test_ranks_on_both_sides_of_a_cut_end(cluster: Cluster, tmp_path: Path) -> None:
    def ranks(host: int) -> list[str]:
        return [line for line in cluster.processes(host) if "job.py" in line]

    job = cluster.begin(*program(tmp_path, ENDLESS), WEFT_TIMEOUT="5")
    try:
        assert eventually(all_exist(tmp_path, "ready"))
        assert len(ranks(0)) == len(ranks(1)) == 2
        cluster.connect(1, False)
        # A rank raises, or aborts if it waits inside a blocking MPI call.
        assert eventually(lambda: not ranks(0) and not ranks(1)), ranks(0) + ranks(1)
    finally:
        cluster.connect(1, True)
        job.kill()  # Open MPI's launcher does not always notice that the daemon of a disconnected host has ended.
        job.communicate()
    logs = [(tmp_path / f"log{rank}").read_text() for rank in range(4)]
    assert all("in all_reduce called from" in log for log in logs), logs


def test_a_crashed_host_ends_the_job(tmp_path: Path) -> None:
    with Cluster(2, 2) as doomed:
        job = doomed.begin(*program(tmp_path, ENDLESS), WEFT_TIMEOUT="20")
        assert eventually(all_exist(tmp_path, "ready"))
        doomed.crash(1)
        # Open MPI's launcher reports the lost daemon but may exit with 0.
        output, _ = job.communicate(timeout=60)
        assert "daemon" in output, output
        assert eventually(lambda: not doomed.processes(0)), doomed.processes(0)
