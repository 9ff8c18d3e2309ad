"""Cells of users as recurrences."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap

from .recurrence import Recurrence, State

Cell = Callable[..., Any]
"""``cell(x_t, state) -> state`` for a batch of rows; a state is a tensor or a tuple of tensors."""


class CellRecurrence(Recurrence):
    """A user's cell. Rows of its batch must be independent, and it must be a function of its arguments and weights.

    Args:
        shapes: the shapes of the tensors of a state, without the batch.
        single: a state is a tensor instead of a tuple.
        weights: replace the parameters of the cell, by name.
    """

    fallible = True

    def __init__(self, cell: Cell, shapes: Sequence[torch.Size], single: bool, weights: Mapping[str, Tensor]) -> None:
        self.name = cell_name(cell)
        self.widths = tuple(shape.numel() for shape in shapes)
        self.weights = tuple(weights.values())
        self._names = tuple(weights)
        self._cell = cell
        self._shapes = shapes
        self._single = single
        function = cell.forward if isinstance(cell, nn.Module) else cell
        # Names of all parameters, also those that share a tensor, and the positions of their weights.
        self._places: dict[str, int] = {}
        if isinstance(cell, nn.Module):
            position = {id(parameter): self._names.index(name) for name, parameter in cell.named_parameters()}
            every = cell.named_parameters(remove_duplicate=False)
            self._places = {name: position[id(parameter)] for name, parameter in every}
        self._takes_dt = "dt" in inspect.signature(function).parameters

    def with_weights(self, weights: Sequence[Tensor]) -> CellRecurrence:
        return CellRecurrence(self._cell, self._shapes, self._single, dict(zip(self._names, weights, strict=True)))

    def run(self, x: Tensor, state: State, lengths: Tensor | None, reverse: bool) -> tuple[Tensor, State]:
        current = self.join(state)
        outputs: list[Tensor] = [current] * len(x)
        for t in range(len(x))[:: -1 if reverse else 1]:
            following = self.step(x[t], current, self.weights)
            output = self.outputs(following)
            if lengths is not None:
                active = (lengths > t).unsqueeze(1)
                following = torch.where(active, following, current)
                output = output.where(active, 0)
            outputs[t] = output
            current = following
        if outputs:
            return torch.stack(outputs), self.split(current)
        # The sum of nothing keeps x in the graph, so that it gets an empty gradient instead of none.
        return current.new_zeros(0, current.size(0), self.widths[0]) + x.sum(), self.split(current)

    def step(self, x: Tensor, state: Tensor, weights: Sequence[Tensor], dt: float = 1) -> Tensor:
        tensors = tuple(
            part.reshape(part.size(0), *shape) for part, shape in zip(self.split(state), self._shapes, strict=True)
        )
        arguments = (x, tensors[0] if self._single else tensors)
        keywords = {"dt": dt} if self._takes_dt else {}
        if isinstance(self._cell, nn.Module):
            parameters = {name: weights[place] for name, place in self._places.items()}
            result = functional_call(self._cell, parameters, arguments, keywords, tie_weights=False)
        else:
            result = self._cell(*arguments, **keywords)
        return self.join(self._flattened(result, tensors))

    def _flattened(self, result: Any, before: State) -> State:
        """Checks the state that the cell returned. Raises ValueError or TypeError."""
        after = (result,) if isinstance(result, Tensor) else result
        if not isinstance(after, (tuple, list)) or not all(isinstance(tensor, Tensor) for tensor in after):
            raise TypeError(f"expected the cell to return a tensor or a tuple of tensors, got {type(result).__name__}")
        expected = [(tuple(tensor.shape), tensor.dtype) for tensor in before]
        got = [(tuple(tensor.shape), tensor.dtype) for tensor in after]
        if got != expected:
            raise ValueError(
                f"expected the cell to keep the shape and type of its state {_describe(before)}, got {_describe(after)}"
            )
        return tuple(tensor.reshape(len(tensor), width) for tensor, width in zip(after, self.widths, strict=True))

    def linearize(self, x: Tensor, state: Tensor, full: bool) -> tuple[Tensor, Tensor]:
        after, pull = vjp(lambda s: self.step(x, s, self.weights), state)  # type: ignore[misc]
        # Rows are independent, so the product with a unit vector in each row gives one row of every Jacobian.
        units = torch.eye(state.size(1), dtype=state.dtype).unsqueeze(1).expand(-1, *state.shape)
        jacobian = vmap(pull)(units)[0].transpose(0, 1)
        if full:
            return after, jacobian.contiguous().unsqueeze(3)
        blocks = self.blocks(full)
        by_block = jacobian.unflatten(2, (blocks, -1)).unflatten(1, (blocks, -1))
        return after, by_block.diagonal(dim1=2, dim2=4).contiguous()


def cell_name(cell: Cell) -> str:
    """Returns the name of a cell in error messages: that of its class or function."""
    return type(cell).__name__ if isinstance(cell, nn.Module) else getattr(cell, "__name__", type(cell).__name__)


def _describe(tensors: Sequence[Tensor]) -> str:
    texts = [f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}" for tensor in tensors]
    return f"({', '.join(texts)})"
