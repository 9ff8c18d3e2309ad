"""Predictions of the time and memory of a training step on any number of ranks, for each solver."""

from .machine import Machine
from .plan import Plan, PlanError, Prediction, plan

__all__ = ["Machine", "Plan", "PlanError", "Prediction", "plan"]
