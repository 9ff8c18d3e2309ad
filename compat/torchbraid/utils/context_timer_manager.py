"""ContextTimerManager under torchbraid's module name."""

from .context_timer import ContextTimer, ContextTimerManager

__all__ = ["ContextTimer", "ContextTimerManager"]
