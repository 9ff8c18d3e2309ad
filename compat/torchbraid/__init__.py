"""torchbraid's interface on top of weft: layer-parallel training by multigrid in time.

``LayerParallel`` takes mpi4py communicators and torchbraid's arguments, and uses ``weft.LayerParallel``.
"""

from . import utils
from ._gru import GRU_Parallel, GRU_Serial, RNN_Serial
from ._layer_parallel import LayerParallel
from ._vector import BraidVector
from .test_fixtures import gpumpi_check, test_cbs
from .utils import getDevice

__all__ = [
    "BraidVector",
    "GRU_Parallel",
    "GRU_Serial",
    "LayerParallel",
    "RNN_Serial",
    "getDevice",
    "gpumpi_check",
    "test_cbs",
    "utils",
]
