"""torchbraid's recurrent classes: their names are here, so that programs which import them without need still run."""

from typing import Any, NoReturn


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"torchbraid (weft): {name} is not there yet; it comes with weft.TimeParallel. "
        "Layers of a network can be run in parallel already, by LayerParallel."
    )


class GRU_Parallel:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("GRU_Parallel")


class GRU_Serial:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("GRU_Serial")
