"""The steps of a rank in the order of the recurrence."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Piece(NamedTuple):
    """This rank's steps in the order of the recurrence: reversed if ``reverse``."""

    x: Tensor
    """[steps, batch, ...]."""
    lengths: Tensor | None
    """The number of steps of each row."""
    reverse: bool
    active: Tensor | None
    """[steps, batch, 1], false after the end of a row; None if all steps are active."""


def as_rows(sequence: Tensor) -> Tensor:
    """Joins steps and batch: [steps, batch, ...] becomes [steps * batch, ...]."""
    return sequence.reshape(sequence.size(0) * sequence.size(1), *sequence.shape[2:])


def active_steps(lengths: Tensor | None, steps: int, reverse: bool) -> Tensor | None:
    """Returns [steps, batch, 1]: whether a step, in the order of the recurrence, is before the end of its row."""
    if lengths is None:
        return None
    active = torch.arange(steps).unsqueeze(1) < lengths
    return in_order(active, reverse).unsqueeze(2)


def in_order(sequence: Tensor, reverse: bool) -> Tensor:
    """Returns the steps in the order of the recurrence; its own inverse."""
    return sequence.flip(0) if reverse else sequence
