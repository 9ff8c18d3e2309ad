"""A run's folder as reports read it: whatever of it is there, and what is missing or damaged, in words."""

from __future__ import annotations

import json
import math
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Run", "RunError", "Scalar"]


# A folder with none of these is no run.
_PARTS = ("metrics.jsonl", "config.yaml", "run.json", "split.json", "trace.json", "checkpoints", "pictures")


class RunError(Exception):
    """A folder that is no run, or a run without what was asked for."""


class Scalar(NamedTuple):
    epoch: int
    step: int
    name: str
    value: float
    time: float


class Run:
    """Reads parts when they are asked for; what is wrong with them is collected in ``problems``."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.problems: list[str] = []
        if not self.folder.is_dir():
            raise RunError(f"weft: expected the folder of a run, got '{self.folder}', which is none")
        if not any((self.folder / part).exists() for part in _PARTS):
            raise RunError(f"weft: expected the folder of a run, got '{self.folder}', which has no part of one")

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @cached_property
    def scalars(self) -> list[Scalar]:
        """All lines of metrics.jsonl that are whole, in the order of the file."""
        result = []
        skipped = 0
        for line in (self._text("metrics.jsonl") or "").splitlines():
            scalar = _scalar(line)
            if scalar is None:
                skipped += 1
            else:
                result.append(scalar)
        if skipped:
            self.problems.append(f"metrics.jsonl: {skipped} lines could not be read")
        return result

    @cached_property
    def curves(self) -> dict[str, list[Scalar]]:
        """By name. A step that was measured again, after a resume, counts once: the last time."""
        latest: dict[str, dict[int, Scalar]] = {}
        for scalar in self.scalars:
            latest.setdefault(scalar.name, {})[scalar.step] = scalar
        return {name: [points[step] for step in sorted(points)] for name, points in latest.items()}

    @cached_property
    def config(self) -> str | None:
        return self._text("config.yaml")

    @cached_property
    def facts(self) -> dict[str, Any] | None:
        """What the run was computed with, by name; runs of older versions have no such file."""
        facts = self.json("run.json") if (self.folder / "run.json").exists() else None
        return facts if isinstance(facts, dict) else None

    @cached_property
    def split(self) -> Any:
        return self.json("split.json")

    @cached_property
    def trace(self) -> list[dict[str, Any]]:
        """The complete events of trace.json and the names of processes and threads."""
        content = self.json("trace.json")
        events = content.get("traceEvents") if isinstance(content, dict) else content
        return [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []

    @cached_property
    def pictures(self) -> list[Path]:
        folder = self.folder / "pictures"
        found = sorted(folder.glob("*")) if folder.is_dir() else []
        if not found:
            self.problems.append("pictures: none")
        return [path for path in found if path.suffix in (".png", ".json")]

    def json(self, name: str) -> Any:
        """The content of a JSON file in the folder; None where it is missing or damaged."""
        text = self._text(name)
        if text is None:
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            self.problems.append(f"{name}: is no JSON ({error})")
            return None

    def _text(self, name: str) -> str | None:
        try:
            return (self.folder / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            self.problems.append(f"{name}: missing")
        except OSError as error:
            self.problems.append(f"{name}: could not be read ({error.strerror})")
        return None


def _scalar(line: str) -> Scalar | None:
    try:
        record = json.loads(line)
        # "NaN" and "Infinity" are strings there, as JSON has no word for them
        return Scalar(
            int(record.get("epoch", 0)),
            int(record["step"]),
            str(record["name"]),
            float(record["value"]),
            _finite(float(record.get("time", 0.0))),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def _finite(number: float) -> float:
    return number if math.isfinite(number) else 0.0
