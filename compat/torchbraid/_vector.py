"""BraidVector: a state and the weights attached to it."""

from collections.abc import Sequence

from torch import Tensor


class BraidVector:
    """The tensors of a state and attached weights. Only for programs that use it; weft's solver uses plain tensors."""

    def __init__(self, tensor: Tensor | Sequence[Tensor]) -> None:
        self._state = _as_tuple(tensor)
        self._weights: tuple[Tensor, ...] = ()

    def tensor(self) -> Tensor:
        """The first tensor of the state."""
        return self._state[0]

    def tensors(self) -> tuple[Tensor, ...]:
        return self._state

    def weightTensors(self) -> tuple[Tensor, ...]:
        return self._weights

    def addWeightTensors(self, weights: Tensor | Sequence[Tensor]) -> None:
        self._weights = _as_tuple(weights)

    def allTensors(self) -> tuple[Tensor, ...]:
        return self._state + self._weights

    def clone(self) -> "BraidVector":
        copy = BraidVector([tensor.detach().clone() for tensor in self._state])
        copy.addWeightTensors([tensor.detach().clone() for tensor in self._weights])
        return copy


def _as_tuple(tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    return (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
