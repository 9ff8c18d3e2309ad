"""Measures the set-up of a job of two ranks while four clients without a key attack the switch.

    sudo .venv/bin/python benchmarks/aggregation/setup.py [--repeats 10] [--attack <name> ...]

The attacks come from the switch's own address and from another one (a network namespace); a busy loop shows the effect
of CPU load alone. Prints one JSON line per condition: medians of init_process_group and, separately, of torch's
TCPStore, whose clients wait for up to a second before they connect again if the server does not listen yet.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))  # the attacks

from sml import attacks  # noqa: E402

NAMESPACES = ROOT / "scripts" / "network_namespaces.sh"
SWITCH = ROOT / "build" / os.environ.get("WEFT_PRESET", "release") / "bin" / "weft-switch"
SWITCH_ADDRESS = "10.77.0.1"  # as other hosts see it
DATA, CONTROL, STORE = 48864, 50099, 29500  # the namespace has all ports
CONNECTIONS = 4
ATTACKS = [
    "none",
    "busy loop",
    "unread replies",
    "rapid reset",
    "unread replies, other host",
    "rapid reset, other host",
]
KEYS = "jobs:\n  training: {key: '" + "00" * 31 + "01'}\n"


def work(repeats: int) -> None:
    """A rank under mpirun."""
    import torch
    import torch.distributed as dist

    import weft

    world = weft.world()
    torch.set_num_threads(1)
    samples: dict[str, list[float]] = {"store": [], "setup": []}

    def measure(name: str, act: Any) -> Any:
        world.barrier()
        start = time.perf_counter()
        result = act()
        samples[name].append(world.all_reduce(torch.tensor(time.perf_counter() - start), "max").item())
        return result

    for repeat in range(repeats + 1):
        place = ("127.0.0.1", STORE + repeat, world.size, world.rank == 0)
        store = measure("store", lambda p=place: dist.TCPStore(*p, timeout=datetime.timedelta(seconds=60)))
        measure(
            "setup", lambda s=store: dist.init_process_group("sml", store=s, rank=world.rank, world_size=world.size)
        )
        dist.destroy_process_group()
    if world.rank == 0:  # the first set-up loads libraries
        print(json.dumps({name: statistics.median(times[1:]) for name, times in samples.items()}), flush=True)


def attack(kind: str) -> None:
    """Runs until it is killed."""
    while kind == "busy loop":
        pass
    host = SWITCH_ADDRESS if kind.endswith("other host") else "127.0.0.1"
    with attacks.attackers(CONTROL, CONNECTIONS, resets=kind.startswith("rapid"), host=host) as strangers:
        while True:
            if sum(stranger.step() for stranger in strangers) == 0:
                time.sleep(0.005)


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(name: str, kind: str, keys: Path, repeats: int) -> dict[str, float]:
    inside = ["ip", "netns", "exec", f"{name}-switch"]
    outside = ["ip", "netns", "exec", f"{name}-w0"]
    listen = ["--listen", f"0.0.0.0:{DATA}", "--control", f"0.0.0.0:{CONTROL}", "--http", "off"]
    command = [*inside, str(SWITCH), *listen, "--jobs", str(keys), "--log-level", "off"]
    this = [sys.executable, __file__]
    attackers = [*(outside if kind.endswith("other host") else inside), *this, "--attacker", kind]
    settings = {"CONTROLLER_IP": "127.0.0.1", "CONTROLLER_PORT": str(CONTROL), "JOB": "training", "KEYS": str(keys)}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **{f"WEFT_SML_{key}": text for key, text in settings.items()}}
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(running(command)).pid
        if kind != "none":
            stranger = stack.enter_context(running(attackers)).pid
        time.sleep(2)
        begin, before = time.monotonic(), (cpu_seconds(switch), cpu_seconds(stranger) if kind != "none" else 0.0)
        ended = subprocess.run(
            [*inside, str(ROOT / "scripts" / "mpirun"), "-n", "2", *this, "--worker", "--repeats", str(repeats)],
            env=environment, stdout=subprocess.PIPE, text=True, timeout=300, check=True,
        )  # fmt: skip
        seconds = time.monotonic() - begin
        figures: dict[str, float] = json.loads(next(x for x in ended.stdout.splitlines() if x.startswith("{")))
        figures["switch_cores"] = (cpu_seconds(switch) - before[0]) / seconds
        figures["attacker_cores"] = (cpu_seconds(stranger) - before[1]) / seconds if kind != "none" else 0.0
        figures["switch_mib"] = attacks.resident_bytes(switch) / (1 << 20)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10, help="set-ups per condition (default 10)")
    parser.add_argument("--attack", nargs="+", default=ATTACKS, choices=ATTACKS, help="conditions (default: all)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--attacker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options.repeats)
    if options.attacker:
        return attack(options.attacker)
    if subprocess.run([NAMESPACES, "possible"], check=False).returncode != 0:
        raise SystemExit("setup: this machine does not permit network namespaces")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("setup: terminated"))  # namespaces outlive a killed process
    name = f"weft-setup-{os.getpid()}"
    subprocess.run([NAMESPACES, "up", name, "1"], check=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            keys = Path(folder) / "keys.yaml"
            keys.touch(mode=0o600)
            keys.write_text(KEYS)
            usual = 0.0
            for kind in options.attack:
                figures = measure(name, kind, keys, options.repeats)
                usual = usual or figures["setup"]
                line = {
                    "name": f"aggregation/setup/{kind}",
                    "value": round(1e3 * figures["setup"], 1),
                    "unit": "ms",
                    "peer": f"TCPStore {1e3 * figures['store']:.1f} ms; switch {figures['switch_mib']:.0f} MiB, "
                    f"{figures['switch_cores']:.2f} cores; attacker {figures['attacker_cores']:.2f} cores",
                    "ratio": round(figures["setup"] / usual, 3),
                }
                print(json.dumps(line), flush=True)
    finally:
        subprocess.run([NAMESPACES, "down", name], check=True)


if __name__ == "__main__":
    main()
