"""Placeholders for torchbraid's recurrent classes, so that programs that only import them still run."""

from typing import Any, NoReturn


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"torchbraid (weft): {name} is not supported: weft cannot split a sequence over ranks. "
        "Use torch.nn.GRU on each rank, or LayerParallel to split the layers of a network."
    )


class GRU_Parallel:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("GRU_Parallel")


class GRU_Serial:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("GRU_Serial")
