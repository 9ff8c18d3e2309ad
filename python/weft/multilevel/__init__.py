"""Training over several depths of a network: refinement, nested iteration and MG/OPT."""

from .depth_levels import depth_levels
from .line_search import Backtracking, BestOf, LineSearch, OptimizerStep, Trial, Weighting
from .mgopt import MGOPT, Level
from .nested_iteration import nested_iteration
from .refine import refine
from .transfer import combine_layers, interpolation, restriction, transposed

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
    "depth_levels",
    "interpolation",
    "nested_iteration",
    "refine",
    "restriction",
    "transposed",
]
