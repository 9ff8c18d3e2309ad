"""weft: differentiable MPI communication for PyTorch, and parallel training on top of it.

Importing it does not initialise MPI; ``weft.world()`` does. Gradients are those of the sum of all ranks' losses.
"""

from __future__ import annotations

import weft_autoload

from . import _call_site, _library, _lifetime, _transforms, errors  # loads the library, where the others look things up
from . import data as data
from . import memory as memory
from ._doctor import Report, doctor
from ._gradients import clip_grad_norm_
from ._messages import ANY_SOURCE, ANY_TAG
from ._options import Options, configure, options
from ._request import Request, Status
from ._tape import anchor, backward, grad, reset_tape, tape, tape_length
from .communicator import Communicator, Grid, from_mpi4py, world
from .errors import Disagreement, LayerError, MpiError, PeerLost, TimeoutError
from .layer_parallel import LayerParallel, Solve
from .mesh import Mesh
from .version import __version__

from . import sml, spatial  # isort: skip  # last: it builds on all of the above

weft_autoload.register_or_raise()
_transforms.install()
_lifetime.install()
_call_site.install()

library_path = str(_library.PATH)

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "Communicator",
    "Disagreement",
    "Grid",
    "LayerError",
    "LayerParallel",
    "Mesh",
    "MpiError",
    "Options",
    "PeerLost",
    "Report",
    "Request",
    "Solve",
    "Status",
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
    "reset_tape",
    "sml",
    "spatial",
    "tape",
    "tape_length",
    "world",
]
