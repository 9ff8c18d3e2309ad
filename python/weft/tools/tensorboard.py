"""Converts the metrics of runs to TensorBoard event files: ``python -m weft.tools.tensorboard runs/a [runs/b ...]``.

Use it for runs without event files; ``weft train`` writes them during the run. ``tensorboard --logdir runs`` shows the
result.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import sys
from pathlib import Path

from weft import _bindings
from weft.tools._run import Run, RunError

__all__ = ["convert"]


def convert(run: Path) -> Path:
    """Writes the event file of a run into its folder, replacing an earlier one, and returns its path.

    Raises RunError if the run has no metrics.
    """
    scalars = Run(run).scalars
    if not scalars:
        raise RunError(f"weft: no metrics in '{run / 'metrics.jsonl'}'")
    target = run / f"events.out.tfevents.{int(scalars[0].time)}.weft"
    partial = target.with_name(target.name + ".partial")
    file = _bindings.load().TensorBoardFile(partial, scalars[0].time)
    for scalar in scalars:
        step = ctypes.c_int64(scalar.step).value  # JSON integers are unbounded
        file.add_scalar(_without_surrogates(scalar.name), step, scalar.value, scalar.time)
    partial.replace(target)
    return target


def events_of_run(run: Path) -> list[Path]:
    """The event files that ``weft train`` wrote; their names end with a host name and a process id."""
    return sorted(path for path in run.glob("events.out.tfevents.*") if path.suffix != ".weft")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="weft tensorboard", description="convert the metrics of runs to TensorBoard event files"
    )
    parser.add_argument("runs", nargs="+", type=Path, help="run folders that contain metrics.jsonl")
    status = 0
    for run in parser.parse_args(arguments).runs:
        if existing := events_of_run(run):
            print(f"{existing[-1]} (written by the run itself)")
            continue
        try:
            print(convert(run))
        except (RunError, OSError) as error:
            print(error, file=sys.stderr)
            status = 1
    return status


def _without_surrogates(name: str) -> str:
    """Replaces lone surrogates, which JSON can contain and UTF-8 cannot."""
    return re.sub("[\ud800-\udfff]", "\ufffd", name)


if __name__ == "__main__":
    sys.exit(main())
