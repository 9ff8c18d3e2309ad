"""weft-switch processes for tests, on free loopback ports."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import weft

PROGRAM = Path(weft.library_path).resolve().parent.parent / "bin" / "weft-switch"
LISTENING = re.compile(r"listening data=127\.0\.0\.1:(\d+) control=127\.0\.0\.1:(\d+) http=127\.0\.0\.1:(\d+)")


class Switch:
    """A switch that listens when the constructor returns. `keys` is a file of job keys."""

    def __init__(self, folder: Path, *arguments: str, keys: Path | None = None) -> None:
        self.log = folder / f"switch-{secrets.token_hex(4)}.log"
        self.arguments = [*arguments, *(["--jobs", str(keys)] if keys else [])]
        self.data = self.control = self.http = 0
        self.start()

    def start(self) -> None:
        """Starts the process; a restart uses the same ports."""
        begin = self.log.stat().st_size if self.log.exists() else 0
        places = {"--listen": self.data, "--control": self.control, "--http": self.http}
        command = [str(PROGRAM), *(word for name, port in places.items() for word in (name, f"127.0.0.1:{port}"))]
        with self.log.open("a") as log:
            self.process = subprocess.Popen([*command, *self.arguments], stderr=log, stdin=subprocess.DEVNULL)
        while (found := LISTENING.search(self.log.read_text()[begin:])) is None:
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.01)
        self.data, self.control, self.http = (int(port) for port in found.groups())

    def kill(self) -> None:
        """Kills the process with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Stops the process with SIGTERM and returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()

    def page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}") as answer:
            return str(answer.read().decode())

    def metric(self, name: str) -> float:
        """Sum of a metric over its labels."""
        pattern = rf"^weft_switch_{re.escape(name)}(?:\{{.*\}})? (\S+)$"
        return sum(float(value) for value in re.findall(pattern, self.page("/metrics"), re.MULTILINE))

    def counted(self, event: str) -> int:
        """Number of events that the control plane counted."""
        found = re.search(rf'control_events_total\{{event="{event}"\}} (\d+)', self.page("/metrics"))
        assert found is not None, event
        return int(found[1])

    def environment(self) -> dict[str, str]:
        """Environment variables for workers."""
        return {"WEFT_SML_CONTROLLER_IP": "127.0.0.1", "WEFT_SML_CONTROLLER_PORT": str(self.control)}


def write_keys(path: Path, **jobs: str) -> Path:
    """Writes a keys file that only its owner can read."""
    lines = ["jobs:", *(f"  {name}: {{key: '{key}'}}" for name, key in jobs.items())]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write("\n".join(lines) + "\n")
    return path
