"""scripts/mpirun, the launcher of every job here."""

from __future__ import annotations

import subprocess
from pathlib import Path

from jobs import LAUNCHER, outside_of_any_job

# Leaves the files of a killed job with this process id, then starts the launcher with the same id.
KILLED_BEFORE = """
folder=${TMPDIR:-/tmp}/ompi.$$
mkdir -p "$folder"
host=$(uname -n)
for name in pmix.$host.tool pmix.$host.tool.$$ pmix.$host.tool.prterun-$host-$$@0; do echo left >"$folder/$name"; done
exec "$@"
"""


def test_starts_after_a_killed_job_with_the_same_process_id(tmp_path: Path) -> None:
    script = tmp_path / "killed_before.sh"
    script.write_text(KILLED_BEFORE)
    done = subprocess.run(
        ["bash", script, LAUNCHER, "-n", "2", "echo", "here"], env=outside_of_any_job(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["here", "here"]
