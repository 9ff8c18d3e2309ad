"""LayerParallel under torchbraid's module name."""

from ._layer_parallel import LayerParallel

__all__ = ["LayerParallel"]
