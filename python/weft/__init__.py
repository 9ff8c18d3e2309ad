"""weft: differentiable MPI communication for PyTorch, and parallel training on top of it.

Importing weft does not initialize MPI; ``weft.world()`` does. Gradients are those of the sum of all ranks' losses.
"""

from __future__ import annotations

from typing import Any

import weft_autoload

from . import (
    _bindings,
    _call_site,
    _checkpointing,
    _library,  # loads the library, whose operations the other modules look up
    _lifetime,
    _renamed,
    _tape,
    _transforms,
    errors,
)
from . import data as data
from . import memory as memory
from ._gradients import clip_grad_norm_
from ._messages import ANY_SOURCE, ANY_TAG
from ._mpi_backend import use_as_mpi_backend
from ._options import Options, configure, options
from ._request import Request, Status
from ._tape import anchor, backward, grad, reset_tape, tape, tape_length
from .communicator import CartTopology, Communicator, from_mpi4py, to_mpi4py, world
from .errors import Disagreement, LayerError, MpiError, NotConverged, PeerLost, TimeoutError
from .layer_parallel import IterationController, LayerParallel, PerSample, Solve
from .mesh import Mesh
from .multilevel import refine
from .planning import Machine, plan
from .time_parallel import GRU, LSTM, ImplicitGRU, ParaGRU, ParaLSTM, TimeParallel
from .tools._diagnosis import doctor
from .version import __version__

from . import sml, spatial  # isort: skip  # imported last: they use the modules above

weft_autoload.register_or_raise()
_bindings.load()  # registers the translation of C++ exceptions
_transforms.install()
_checkpointing.install()
_tape.install()
_lifetime.install()
_call_site.install()

library_path = str(_library.PATH)

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "GRU",
    "LSTM",
    "CartTopology",
    "Communicator",
    "Disagreement",
    "ImplicitGRU",
    "IterationController",
    "LayerError",
    "LayerParallel",
    "Machine",
    "Mesh",
    "MpiError",
    "NotConverged",
    "Options",
    "ParaGRU",
    "ParaLSTM",
    "PeerLost",
    "PerSample",
    "Request",
    "Solve",
    "Status",
    "TimeParallel",
    "TimeoutError",
    "__version__",
    "anchor",
    "backward",
    "clip_grad_norm_",
    "configure",
    "data",
    "doctor",
    "errors",
    "from_mpi4py",
    "grad",
    "library_path",
    "memory",
    "options",
    "plan",
    "refine",
    "reset_tape",
    "sml",
    "spatial",
    "tape",
    "tape_length",
    "to_mpi4py",
    "use_as_mpi_backend",
    "world",
]

_RENAMED = {"Grid": ("weft.communicator", "CartTopology"), "Report": ("weft.tools.doctor", "DoctorReport")}


def __getattr__(name: str) -> Any:
    return _renamed.resolve("weft", name, _RENAMED)
