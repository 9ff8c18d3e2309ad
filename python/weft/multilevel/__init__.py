"""Multilevel optimization over the depth of a network: transfers between depths, line searches and MG/OPT."""

from .line_search import Backtracking, BestOf, LineSearch, OptimizerStep, Trial, Weighting
from .mgopt import MGOPT, Level
from .transfer import combine_layers, interpolation, restriction

__all__ = [
    "MGOPT",
    "Backtracking",
    "BestOf",
    "Level",
    "LineSearch",
    "OptimizerStep",
    "Trial",
    "Weighting",
    "combine_layers",
    "interpolation",
    "restriction",
]
