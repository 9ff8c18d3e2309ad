"""Reads the folder of a run for reports, and collects descriptions of missing and damaged parts."""

from __future__ import annotations

import json
import math
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Run", "RunError", "Scalar"]


# A run folder contains at least one of these.
_PARTS = ("metrics.jsonl", "config.yaml", "run.json", "split.json", "trace.json", "checkpoints", "pictures")


class RunError(Exception):
    """The folder is not a run folder, or lacks the requested part."""


class Scalar(NamedTuple):
    """A line of metrics.jsonl."""

    epoch: int
    step: int
    name: str
    value: float
    time: float


class Run:
    """A run folder, read on demand; ``problems`` lists missing and damaged parts. Raises RunError for other folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.problems: list[str] = []
        if not self.folder.is_dir():
            raise RunError(f"weft: '{self.folder}' is not a folder; expected the folder of a run")
        if not any((self.folder / part).exists() for part in _PARTS):
            raise RunError(f"weft: '{self.folder}' is not a run folder: it contains none of {', '.join(_PARTS)}")

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.resolve().name

    @cached_property
    def scalars(self) -> list[Scalar]:
        """All valid lines of metrics.jsonl, in file order."""
        result = []
        skipped = 0
        for line in (self._text("metrics.jsonl") or "").splitlines():
            scalar = _scalar(line)
            if scalar is None:
                skipped += 1
            else:
                result.append(scalar)
        if skipped:
            self.problems.append(f"metrics.jsonl: skipped {skipped} invalid lines")
        return result

    @cached_property
    def curves(self) -> dict[str, list[Scalar]]:
        """Scalars by name, sorted by step. After a resume, the latest measurement of a step counts."""
        latest: dict[str, dict[int, Scalar]] = {}
        for scalar in self.scalars:
            latest.setdefault(scalar.name, {})[scalar.step] = scalar
        return {name: [points[step] for step in sorted(points)] for name, points in latest.items()}

    @property
    def seconds(self) -> float:
        """Time from the first measurement to the last. A pause before a resumption counts."""
        times = [scalar.time for scalar in self.scalars]
        return max(times) - min(times) if times else 0.0

    @cached_property
    def config(self) -> str | None:
        """Text of config.yaml."""
        return self._text("config.yaml")

    @cached_property
    def facts(self) -> dict[str, Any] | None:
        """Environment of the run, from run.json, which runs of older versions do not have."""
        facts = self.json("run.json") if (self.folder / "run.json").exists() else None
        return facts if isinstance(facts, dict) else None

    @cached_property
    def split(self) -> Any:
        """Content of split.json."""
        return self.json("split.json")

    @cached_property
    def trace(self) -> list[dict[str, Any]]:
        """Events of trace.json."""
        content = self.json("trace.json")
        events = content.get("traceEvents") if isinstance(content, dict) else content
        return [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []

    @cached_property
    def pictures(self) -> list[Path]:
        """Files in pictures/."""
        folder = self.folder / "pictures"
        found = sorted(folder.glob("*")) if folder.is_dir() else []
        if not found:
            self.problems.append("pictures: none")
        return [path for path in found if path.suffix in (".png", ".json")]

    def json(self, name: str) -> Any:
        """Returns the content of a JSON file in the folder; None if it is missing or damaged."""
        text = self._text(name)
        if text is None:
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            self.problems.append(f"{name}: invalid JSON ({error})")
            return None

    def _text(self, name: str) -> str | None:
        try:
            return (self.folder / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            self.problems.append(f"{name}: missing")
        except OSError as error:
            self.problems.append(f"{name}: cannot be read ({error.strerror})")
        return None


def _scalar(line: str) -> Scalar | None:
    try:
        record = json.loads(line)
        # NaN and infinities are strings, because JSON has no numbers for them.
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
