"""Attacks on the control plane by clients without a key: bounded memory, valid logs and metrics, jobs still start."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import jobs
import pytest
from sml import attacks
from sml.switches import Switch, write_keys

KEY = "00" * 31 + "01"
JOB = """
import torch.distributed as dist
dist.init_process_group("sml")
x = torch.ones(1000)
dist.all_reduce(x)
assert (x == 2).all()
dist.destroy_process_group()
print("trained", flush=True)
"""


@pytest.mark.parametrize(("resets", "connections"), [(False, 4), (True, 4), (True, 200)])
@pytest.mark.parametrize("by_key", [True, False])
def test_floods_do_not_exhaust_the_memory(tmp_path: Path, resets: bool, connections: int, by_key: bool) -> None:
    """Calls whose replies are not read, and calls that are cancelled at once (rapid reset)."""
    switch = Switch(tmp_path, keys=write_keys(tmp_path / "keys.yaml", training=KEY) if by_key else None)
    largest, sent = attacks.flood(switch.control, switch.process.pid, 2, connections, resets=resets)
    switch.kill()
    assert sent > 1 << 16, "the attack must reach the switch"
    assert largest < 100 << 20, f"{largest >> 20} MiB resident"


def test_a_job_starts_during_a_flood(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.yaml", training=KEY)
    switch = Switch(tmp_path, keys=keys)
    over, largest = threading.Event(), []

    def attack() -> None:
        while not over.is_set():
            largest.append(attacks.flood(switch.control, switch.process.pid, 0.5, 4)[0])

    attacker = threading.Thread(target=attack)
    attacker.start()
    try:
        where = switch.environment() | {"WEFT_SML_JOB": "training", "WEFT_SML_KEYS": str(keys)}
        status, text, _ = jobs.run(tmp_path, JOB, **where)
    finally:
        over.set()
        attacker.join()
        switch.kill()
    assert status == 0 and text.count("trained") == 2, text
    assert max(largest) < 100 << 20


def reply_to(port: int, name: bytes) -> bytes:
    """Joins with a job name; returns the reply's bytes once they contain gRPC's status."""
    first = attacks.PREFACE + attacks.frame(attacks.SETTINGS, 0, 0)
    message = b"\x00\x00\x00\x00\x04\x18\x01\x38\x03"  # num_workers 1, packets of 1024 bytes
    request = attacks.frame(attacks.HEADERS, attacks.END_HEADERS, 1, attacks.headers(attacks.JOIN, weft_job=name))
    request += attacks.frame(attacks.DATA, attacks.END_STREAM, 1, message)
    reply = b""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
        stranger.sendall(first + request)
        while b"grpc-status" not in reply and (got := stranger.recv(4096)):
            reply += got
    return reply


@pytest.mark.parametrize("by_key", [True, False])
def test_job_names_cannot_forge_log_lines_or_metrics(tmp_path: Path, by_key: bool) -> None:
    keys = write_keys(tmp_path / "keys.yaml", training=KEY) if by_key else None
    switch = Switch(tmp_path, "--log-level", "debug", keys=keys)
    names = [
        b"a\nweft-switch error: smuggled",
        b"a\r\nsmuggled",
        b"\x1b[2Jsmuggled",
        b"\xff\xfesmuggled",
        b"smuggled name",
        b"a" * 65,
    ]
    for name in names:
        reply_to(switch.control, name)
    time.sleep(0.2)
    log, page = switch.log.read_bytes(), switch.page("/metrics")
    counted = switch.counted("bad_request")
    switch.kill()
    assert b"smuggled" not in log and b"\x1b" not in log and b"a" * 65 not in log, log
    assert "smuggled" not in page
    # gRPC itself refuses some of the names.
    assert 0 < counted <= len(names)
