"""The program weft-switch: addresses, signals and embedded workers."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import jobs
import pytest
from sml.switches import PROGRAM, Switch, write_keys

KEY, OTHER_KEY = "00" * 31 + "01", "00" * 31 + "02"


@pytest.mark.parametrize("arguments", [[], ["--open"], ["--jobs"]])
def test_listens_on_loopback_unless_other_machines_are_admitted(tmp_path: Path, arguments: list[str]) -> None:
    if arguments == ["--jobs"]:
        arguments = ["--jobs", str(write_keys(tmp_path / "keys.yaml", training=KEY))]
    log = tmp_path / "log"
    command = [str(PROGRAM), "--listen", "0", "--control", "0", "--http", "off", *arguments]
    with log.open("w") as file:
        switch = subprocess.Popen(command, stderr=file, stdin=subprocess.DEVNULL)
    while (found := re.search(r"listening data=([\d.]+):\d+ control=([\d.]+):\d+", log.read_text())) is None:
        assert switch.poll() is None, log.read_text()
        time.sleep(0.01)
    switch.terminate()
    assert switch.wait() == 0
    assert set(found.groups()) == {"0.0.0.0" if arguments else "127.0.0.1"}, found[0]


def wait_for(switch: Switch, words: str) -> None:
    while words not in switch.log.read_text():
        assert switch.process.poll() is None, switch.log.read_text()
        time.sleep(0.01)


JOIN = """
import torch.distributed as dist
dist.init_process_group("sml")
dist.destroy_process_group()
print("joined", flush=True)
"""


def test_sighup_reloads_the_keys(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.yaml", training=KEY)
    switch = Switch(tmp_path, keys=keys)
    write_keys(keys, training="00")
    switch.process.send_signal(signal.SIGHUP)
    wait_for(switch, "keeping the old keys")
    write_keys(keys, training=OTHER_KEY, more=KEY)
    switch.process.send_signal(signal.SIGHUP)
    wait_for(switch, "reloaded the keys of 2 job(s)")
    where = switch.environment() | {"WEFT_SML_JOB": "training", "WEFT_SML_KEYS": str(keys)}
    status, text, _ = jobs.run(tmp_path, JOIN, **where)
    switch.kill()
    assert status == 0 and text.count("joined") == 2, text


def test_sighup_without_keys_is_logged_and_ignored(tmp_path: Path) -> None:
    switch = Switch(tmp_path)
    switch.process.send_signal(signal.SIGHUP)
    wait_for(switch, "SIGHUP: ignored")
    assert switch.stop() == 0


STUBBORN = ["sh", "-c", "trap '' TERM; echo ready; exec sleep 60"]


@pytest.mark.parametrize("signals", [1, 2])
def test_embedded_workers_that_ignore_sigterm_are_killed(signals: int) -> None:
    """After a grace period, or immediately at the second signal."""
    with subprocess.Popen(
        [str(PROGRAM), "--embedded", "2", "--http", "off", "--", *STUBBORN],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as switch:
        assert switch.stdout is not None
        assert [switch.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        start = time.monotonic()
        for _ in range(signals):
            switch.terminate()
            time.sleep(0.5)
        _, text = switch.communicate(timeout=50)
        assert switch.returncode == 128 + signal.SIGTERM
    assert ("ignored SIGTERM" in text) == (signals == 1), text
    assert time.monotonic() - start < 50  # the workers sleep for 60 s


def test_embedded_workers_are_killed_if_another_fails(tmp_path: Path) -> None:
    script = 'if [ "$RANK" = 0 ]; then sleep 0.5; exit 3; fi; trap "" TERM; exec sleep 60'
    job = subprocess.run(
        [str(PROGRAM), "--embedded", "2", "--http", "off", "--", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert job.returncode == 3 and "worker 0 exited with status 3" in job.stderr, job.stderr
