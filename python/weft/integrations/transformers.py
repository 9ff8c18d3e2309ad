"""Lets Hugging Face's Trainer use ``TrainingArguments(ddp_backend="weft", use_cpu=True)``.

The Trainer leaves process groups to Accelerate, so this module imports weft.integrations.accelerate.
"""

from __future__ import annotations

from ._packages import require

require("transformers")

from . import accelerate as accelerate  # noqa: E402
