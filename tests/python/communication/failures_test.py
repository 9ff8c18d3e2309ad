"""Ranks that fail, exit or stall: no rank hangs, and every rank reports the reason. Each test runs a separate job."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import LAUNCHER, outside_of_any_job, run


@pytest.mark.parametrize("ranks", [2, 3])
def test_uncaught_exception_ends_the_job_and_is_reported_by_all_ranks(ranks: int, tmp_path: Path) -> None:
    status, text, seconds = run(
        tmp_path,
        """
        comm = weft.world()
        comm.all_reduce(torch.ones(1))
        if comm.rank == 0:
            raise ValueError("bad batch 17")
        comm.all_reduce(torch.ones(1))
        """,
        ranks,
    )
    assert status != 0 and seconds < 60
    assert "ValueError: bad batch 17" in text
    assert re.search(r"PeerLost: rank 0 failed: ValueError: bad batch 17 at .*job\.py:\d+", text)
    assert re.search(r"noticed in all_reduce called from .*job\.py:\d+", text)


@pytest.mark.parametrize("backend", ["weft", "gloo"])
def test_traceback_is_printed_with_a_process_group(backend: str, tmp_path: Path) -> None:
    status, text, _ = run(
        tmp_path,
        f"""
        import os, torch.distributed as dist
        rank = weft.world().rank
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str({40000 + os.getpid() % 20000}))
        dist.init_process_group("{backend}", rank=rank, world_size=weft.world().size)
        dist.barrier()
        if rank == 1:
            raise ValueError("bad batch 18")
        dist.barrier()
        """,
    )
    assert status != 0
    assert "Traceback" in text and "ValueError: bad batch 18" in text


def test_peer_catches_the_failure_of_another_rank(tmp_path: Path) -> None:
    status, text, _ = run(
        tmp_path,
        """
        comm = weft.world()
        try:
            if comm.rank == 0:
                raise ValueError("no data")
            comm.recv(source=0)
        except weft.PeerLost as lost:
            print("rank", comm.rank, "lost", lost.rank, flush=True)
        """,
    )
    assert status != 0 and "rank 1 lost 0" in text


def test_early_end_of_a_rank_ends_the_job(tmp_path: Path) -> None:
    status, text, seconds = run(
        tmp_path,
        """
        comm = weft.world()
        if comm.rank == 1:
            comm.all_reduce(torch.ones(1))
        """,
    )
    assert status != 0 and seconds < 60
    assert "this rank exited while other ranks were still communicating" in text
    assert re.search(r"all_reduce\(Float\[1\], 'sum'\) called from .*job\.py:\d+", text)


# A call of exit on rank 0 with the calls in which ranks 1 and 2 wait at that time.
EXITS = {
    "raise SystemExit(3)": ("comm.all_reduce(torch.ones(1))", "comm.recv(source=0)"),
    "print('stop'); exit(3)": ("weft.backward(y.sum())", "dist.all_reduce(torch.ones(1))"),
    "sys.exit(3)": ("weft.backward(y.sum())", "comm.recv(source=0)"),
}


@pytest.mark.parametrize("leave", EXITS)
def test_exit_status_of_one_rank_ends_the_job_at_once(leave: str, tmp_path: Path) -> None:
    waits = EXITS[leave]
    status, text, seconds = run(
        tmp_path,
        f"""
        import sys, torch.distributed as dist
        comm = weft.world()
        dist.init_process_group("weft")
        y = comm.all_reduce(torch.ones(2, requires_grad=True))
        if comm.rank == 0:
            {leave}
        elif comm.rank == 1:
            {waits[0]}
        else:
            {waits[1]}
        """,
        3,
    )
    assert status == 3 and seconds < 60, text
    assert len(re.findall(r"rank 0 failed: SystemExit: 3 at .*job\.py:8", text)) >= 2, text


def test_caught_exit_does_not_end_the_job(tmp_path: Path) -> None:
    program = """
        import pickle, sys, threading
        comm = weft.world()
        if comm.rank == 0:
            try:
                sys.exit(3)
            except SystemExit as error:
                assert error.code == 3 and type(pickle.loads(pickle.dumps(error))) is SystemExit
            thread = threading.Thread(target=sys.exit, args=(4,))
            thread.start()
            thread.join()
        print("sum", comm.all_reduce(torch.ones(1)).item(), flush=True)
        if comm.rank < 2:
            sys.exit()
        """
    status, text, _ = run(tmp_path, program, 3)
    assert status == 0 and text.count("sum 3.0") == 3 and "Traceback" not in text, text


def test_exit_waits_for_ranks_that_do_not_communicate(tmp_path: Path) -> None:
    program = """
        import time
        comm = weft.world()
        if comm.rank == 1:
            time.sleep(2)
            print("saved", flush=True)
        """
    status, text, _ = run(tmp_path, program, WEFT_TIMEOUT="1")
    assert status == 0 and "saved" in text, text
    assert "TimeoutError" not in text and "still communicating" not in text
    assert re.search(r"rank 0 has waited \d+ s in the exit barrier", text), text


def test_failure_during_the_exit_barrier_is_reported(tmp_path: Path) -> None:
    program = """
        import time
        comm = weft.world()
        if comm.rank == 1:
            time.sleep(1)
            raise ValueError("cannot save")
        """
    status, text, seconds = run(tmp_path, program)
    assert status == 1 and seconds < 60
    assert "a rank failed while this rank waited for all ranks to exit" in text and "cannot save" in text, text


def test_exit_waits_for_ranks_that_continue_after_a_failure(tmp_path: Path) -> None:
    """Rank 2 learns of the failure in the exit barrier. The failure was handled, so the job succeeds."""
    program = """
        world = weft.world()
        pair = world.split(0 if world.rank < 2 else None)
        if pair is not None:
            y = pair.all_reduce(torch.ones(1, requires_grad=True))
            if world.rank == 0:
                y.register_hook(lambda gradient: 1 / 0)
            try:
                y.sum().backward()
                pair.barrier()
            except (ZeroDivisionError, RuntimeError):
                print("rank", world.rank, "continues with", pair.all_reduce(torch.ones(1)).item())
        """
    status, text, _ = run(tmp_path, program, 3)
    assert status == 0, text
    assert "rank 0 continues with 2.0" in text and "rank 1 continues with 2.0" in text


def test_child_of_fork_does_not_use_the_mpi_of_its_parent(tmp_path: Path) -> None:
    program = """
        import os, sys, torch.distributed as dist
        comm = weft.world()
        dist.init_process_group("weft")
        dist.all_reduce(torch.ones(1))

        def fail():
            raise ValueError("of the child")

        for end in (lambda: sys.exit(5), fail, lambda: None):
            if comm.rank == 0 and (child := os.fork()) != 0:
                print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            elif comm.rank == 0:
                try:
                    comm.all_reduce(torch.ones(1))
                except weft.MpiError as error:
                    print("told", error, flush=True)
                end()
                sys.exit()
            x = torch.ones(1)
            dist.all_reduce(x)
            print("sums", comm.all_reduce(torch.ones(1)).item(), x.item(), flush=True)
        """
    status, text, seconds = run(tmp_path, program)
    assert status == 0 and seconds < 60, text
    assert text.count("sums 2.0 2.0") == 6 and text.count("is this a child of fork()?") == 3, text
    assert re.findall(r"child (\d)$", text, re.MULTILINE) == ["5", "1", "0"], text


def test_signal_interrupts_a_wait(tmp_path: Path) -> None:
    """Warnings look up the call site very often here. Regression: that swallowed the KeyboardInterrupt."""
    program = """
        import os, pathlib, signal, threading, time, torch.distributed as dist
        comm = weft.world()
        dist.init_process_group("weft")
        x = torch.ones(1)
        waits = {
            "recv": lambda: comm.recv(source=0),
            "all_reduce": lambda: comm.all_reduce(torch.ones(1)),
            "process_group": lambda: dist.all_reduce(x),
        }
        for name, wait in waits.items():
            interrupted = pathlib.Path(__file__).with_name(name)
            if comm.rank == 1:
                threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
                start = time.monotonic()
                try:
                    wait()
                except KeyboardInterrupt:
                    print(name, "interrupted after", time.monotonic() - start, flush=True)
                interrupted.touch()
            while not interrupted.exists():
                time.sleep(0.1)
            if comm.rank == 0 and name != "recv":
                try:
                    wait()  # the operation of a process group completes in the background
                except weft.PeerLost as lost:
                    print("told", lost, flush=True)
            y = torch.ones(1)
            dist.all_reduce(y)
            print("sums", comm.all_reduce(torch.ones(1)).item(), y.item(), flush=True)
        """
    status, text, _ = run(tmp_path, program, WEFT_WARN="0.01")
    assert status == 0 and text.count("sums 2.0 2.0") == 6, text
    waited = re.findall(r"(\w+) interrupted after ([\d.]+)", text)
    assert [name for name, _ in waited] == ["recv", "all_reduce", "process_group"], text
    assert all(0.9 < float(seconds) < 30 for _, seconds in waited), text
    assert text.count("told weft.PeerLost: rank 1 failed: a signal interrupted its wait") == 1, text


def test_timeout_names_rank_operation_and_line(tmp_path: Path) -> None:
    status, text, _ = run(
        tmp_path,
        """
        import pathlib, time
        comm, given_up = weft.world(), pathlib.Path(__file__).with_name("given_up")
        weft.configure(timeout=1, warn_after=0.5)
        comm.barrier()
        if comm.rank == 1:
            try:
                comm.all_reduce(torch.ones(3))   # line 9 of the script
            except weft.TimeoutError as error:
                print("caught", error, flush=True)
            given_up.touch()
        else:
            while not given_up.exists(): time.sleep(0.1)
            try:
                comm.barrier()
            except weft.PeerLost as lost:
                print("told", lost, flush=True)
        try:
            comm.recv(source=(comm.rank + 1) % comm.size, tag=5)   # line 20
        except weft.TimeoutError as error:
            print("caught", error, flush=True)
        weft.configure(timeout=60)
        print("sum", comm.all_reduce(torch.ones(1)).item(), flush=True)
        """,
    )
    assert status == 0, text
    assert re.search(r"rank 1 has waited \d+ s in all_reduce called from .*job\.py:9, no message from rank 0", text)
    assert re.search(r"caught weft.TimeoutError: rank 1 gave up after [\d.]+ s in all_reduce", text)
    assert "told weft.PeerLost: rank 1 failed" in text
    assert len(re.findall(r"caught weft\.TimeoutError: rank \d gave up .* in recv called from .*job\.py:20", text)) == 2
    assert text.count("sum 2.0") == 2


def test_waiting_rank_is_named_if_backward_is_missing_on_one_rank(tmp_path: Path) -> None:
    status, text, _ = run(
        tmp_path,
        """
        comm = weft.world()
        weft.configure(timeout=1)
        x = torch.ones(2, requires_grad=True)
        y = comm.all_reduce(x)
        if comm.rank == 0:
            weft.backward(y.sum())   # line 8
        """,
    )
    assert status != 0
    assert re.search(r"rank 0 has waited \d+ s in all_reduce called from .*job\.py:8", text), text


def test_debug_names_the_line_that_backward_does_not_reach(tmp_path: Path) -> None:
    status, text, _ = run(
        tmp_path,
        """
        comm = weft.world()
        x = torch.ones(2, requires_grad=True)
        loss = comm.all_reduce(x).sum()
        unused = comm.all_gather(x)   # line 6
        loss.backward()
        """,
        WEFT_DEBUG="1",
    )
    assert status != 0
    assert re.search(r"does not reach all_gather on communicator 'world' called from .*job\.py:6", text), text


def test_runs_on_one_rank_without_a_launcher(tmp_path: Path) -> None:
    program = "import torch, weft; print(weft.world().all_reduce(torch.ones(1)).item())"
    job = subprocess.run(
        [sys.executable, "-c", program], env=outside_of_any_job(), capture_output=True, text=True, check=False
    )
    assert job.returncode == 0 and job.stdout.strip() == "1.0", job.stderr


def test_doctor_command_prints_a_report_once() -> None:
    alone = [sys.executable, "-m", "weft.tools.doctor"]
    ranks = [str(LAUNCHER), "-n", "2", *alone]

    def begin(command: list[str], **variables: str) -> subprocess.Popen[str]:
        environment = {**outside_of_any_job(), **variables}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    jobs = [begin(ranks), begin(alone), begin(ranks, OMP_NUM_THREADS="64"), begin([*alone, "--foo"])]
    (good, error), (single, _), (slow, _), (_, usage) = [job.communicate(timeout=120) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0, 1, 2], error
    assert good.count("MPI library") == 1 and "ranks         2" in good
    assert "no launcher" in single and "mpirun -n 2" in single and "no problems found" in single
    assert "set OMP_NUM_THREADS=" in slow
    assert "--foo" in usage
