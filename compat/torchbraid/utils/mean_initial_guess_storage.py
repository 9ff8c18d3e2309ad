"""MeanInitialGuessStorage under torchbraid's module name."""

from .initial_guess import MeanInitialGuessStorage

__all__ = ["MeanInitialGuessStorage"]
