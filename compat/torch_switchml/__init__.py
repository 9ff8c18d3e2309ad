"""weft's version of SwitchML's PyTorch plugin: ``import torch_switchml``, then ``init_process_group("sml")``.

The configuration file is SwitchML's. Unlike the original, this plugin supports all collectives (through MPI or gloo if
the switch cannot sum them), asynchronous operations and timeouts, preserves NaN and Inf, and raises errors.
"""

import weft_autoload
from weft.sml import statistics

import weft

weft_autoload.register_or_raise()

__version__ = weft.__version__
__all__ = ["__version__", "statistics"]
