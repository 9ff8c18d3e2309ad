"""Kills ranks and whole jobs at random times: --resume always continues, with the same result.

WEFT_KILLS sets the number of kills; `make test-kills` uses 50.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from experiment.weft_command import STEPS, WEFT, checkpoint_steps, command, curve, environment, toy_file, weft

INTERVAL = 7  # steps between checkpoints
TOGETHER = 2  # jobs at the same time: much of their time is spent waiting
KILLS = int(os.environ.get("WEFT_KILLS", "5"))
LONGEST = 4.0  # seconds; later, the run is finished
PATIENCE = 120.0  # seconds to wait for processes to end


def _children(process: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int(entry.joinpath("stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        if parent == process:
            found += [int(entry.name), *_children(int(entry.name))]
    return found


def _is_rank(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/exe").resolve() == WEFT.resolve()
    except OSError:
        return False


@contextlib.contextmanager
def _process_handles(job: subprocess.Popen[bytes]) -> Iterator[dict[int, int]]:
    """Opens a handle for each descendant of the job, since the system may reuse process ids."""
    handles: dict[int, int] = {}
    if job.poll() is None:  # otherwise its id may belong to another process
        for process in _children(job.pid):
            with contextlib.suppress(ProcessLookupError):
                handles[process] = os.pidfd_open(process)
        still = _children(job.pid)
        for process in set(handles) - set(still):
            os.close(handles.pop(process))
    try:
        yield handles
    finally:
        for handle in handles.values():
            os.close(handle)


def _kill(handles: Iterable[int]) -> None:
    for handle in handles:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)


def _wait_for_the_end(handles: Iterable[int]) -> None:
    """Waits until the launcher has ended the other ranks."""
    until = time.monotonic() + PATIENCE
    for handle in handles:
        ended, _, _ = select.select([handle], [], [], max(0, until - time.monotonic()))
        assert ended, "a rank survived its launcher"


def _wait_for_steps(job: subprocess.Popen[bytes], arguments: list[str | Path]) -> None:
    metrics = Path(arguments[arguments.index("--out") + 1]) / "metrics.jsonl"
    size = metrics.stat().st_size if metrics.exists() else 0
    while job.poll() is None and (metrics.stat().st_size if metrics.exists() else 0) <= size:
        time.sleep(0.02)


def _train_until_killed(arguments: list[str | Path], dice: random.Random) -> bool:
    """Returns whether the job was killed before it finished."""
    job = subprocess.Popen(command(*arguments), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    training = dice.random() < 0.8  # otherwise kill it at any time, including its start
    if training:
        _wait_for_steps(job, arguments)
    time.sleep(dice.uniform(0, 1 if training else LONGEST))
    with _process_handles(job) as handles:
        ranks = [handle for process, handle in handles.items() if _is_rank(process)]
        whole = dice.random() < 0.5 or not ranks
        if whole:
            job.kill()  # no effect if it has ended
        _kill(handles.values() if whole else [dice.choice(ranks)])
        status = job.wait(timeout=PATIENCE)
        _wait_for_the_end(ranks)
    return status != 0


def _kill_three_times(unbroken: Path, run: int) -> int:
    """Kills a run up to three times, lets it finish, and compares it with the unbroken one. Returns the kills."""
    dice = random.Random(f"{os.environ.get('WEFT_KILL_SEED', '1')}/{run}")
    out = unbroken.with_name(f"killed-{run}")
    arguments = _training_into(out)
    kills = 0
    for _ in range(3):
        before = max(curve(out), default=0) if (out / "metrics.jsonl").exists() else 0
        kept = max(checkpoint_steps(out), default=0)
        assert before - kept <= INTERVAL, "lost more than one checkpoint interval"
        kills += _train_until_killed(arguments, dice)
    done = weft(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert curve(out) == curve(unbroken)  # bit-equal
    assert max(curve(out)) == STEPS
    return kills


def _training_into(out: Path) -> list[str | Path]:
    file = out.parent / "toy.yaml"
    return ["train", "-n", "2", file, "--set", f"checkpoint_every={INTERVAL}", "--out", out, "--resume"]


def test_killed_runs_resume_with_the_same_result(tmp_path: Path) -> None:
    toy_file(tmp_path)
    unbroken = tmp_path / "unbroken"
    assert weft(*_training_into(unbroken)).returncode == 0
    runs = count(1)
    kills = 0
    with ThreadPoolExecutor(TOGETHER) as threads:
        while kills < KILLS:
            jobs = [threads.submit(_kill_three_times, unbroken, next(runs)) for _ in range(TOGETHER)]
            kills += sum(job.result() for job in jobs)
