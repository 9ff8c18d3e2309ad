"""Registers Lightning's strategy "weft": DDP over MPI. Import this module before you create a Trainer.

Lightning detects MPI launchers through mpi4py, which must therefore be installed.
"""

from __future__ import annotations

from ._packages import changed, require

require("mpi4py")
strategies = require("lightning", "lightning.pytorch.strategies")


def install() -> None:
    """Called by the import. Idempotent."""
    registry = getattr(strategies, "StrategyRegistry", None)
    if registry is None:
        raise changed(
            "lightning", "it has no StrategyRegistry", "pass strategy=DDPStrategy(process_group_backend='weft')"
        )
    if "weft" not in registry:
        registry.register("weft", strategies.DDPStrategy, description="DDP over MPI", process_group_backend="weft")


install()
