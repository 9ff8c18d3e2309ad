"""SwitchML's PyTorch plugin, by weft: ``import torch_switchml``, then ``init_process_group(backend="sml")``.

The configuration file is SwitchML's. Unlike the original it has all collectives (those that no switch sums take MPI or
gloo), asynchronous operations, timeouts, and errors in place of aborts; NaN and Inf arrive.
"""

import weft_autoload
from weft.sml import statistics

import weft

weft_autoload.register_or_raise()

__version__ = weft.__version__
__all__ = ["__version__", "statistics"]
