"""The layers of a network: those of this rank, and models of other layers for coarse steps, which borrow weights.

Programs may set coarsening factors and levels after the layers were created, which changes the borrowed layers. Each
rank therefore keeps models of all layers, without memory for the weights, which the owners send.
"""

from __future__ import annotations

import copy
import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Block = Callable[[], nn.Module]


def expand(blocks: Block | Sequence[Block], steps: int | Sequence[int]) -> list[tuple[Block, bool]]:
    """Returns, for each layer, its factory and whether its block has one step (no residual)."""
    makers, counts = _as_list(blocks), _as_list(steps)
    if len(makers) != len(counts) or _is_list(blocks) != _is_list(steps):
        raise ValueError(
            "torchbraid (weft): expected one layer block and one number of steps, or equally long lists of both; "
            f"got {_count(blocks)} and {_count(steps)}"
        )
    for maker, count in zip(makers, counts, strict=True):
        if not callable(maker):
            raise TypeError(f"torchbraid (weft): expected functions that create layers, got {type(maker).__name__}")
        if int(count) != count or count < 1:
            raise ValueError(f"torchbraid (weft): expected step counts of at least 1, got {count!r}")
    return [(maker, count == 1) for maker, count in zip(makers, counts) for _ in range(int(count))]


def _is_list(value: Any) -> bool:
    return hasattr(value, "__len__") and not callable(value)


def _as_list(value: Any) -> list[Any]:
    return list(value) if _is_list(value) else [value]


def _count(value: Any) -> str:
    return f"a list of {len(value)}" if _is_list(value) else "one"


def form_of(layer: nn.Module, alone: bool) -> str:
    """Returns weft's form of the layer. torchbraid derives it from the step count and the arguments of forward."""
    forward = getattr(layer, "template", layer).forward
    parameters = [p for p in inspect.signature(forward).parameters.values() if p.kind in _POSITIONAL]
    second = parameters[1] if len(parameters) > 1 else None
    if second is not None and (second.name == "dt" or (second.default is inspect.Parameter.empty and not alone)):
        return "step"
    return "plain" if alone else "residual"


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Layers:
    """All layers by number. Every rank creates all layers in the same order, so that equal seeds give equal networks on
    any number of ranks."""

    def __init__(self, makers: list[tuple[Block, bool]], own: range) -> None:
        self.own: dict[int, nn.Module] = {}
        self.forms: list[str] = []
        self._models: dict[int, nn.Module] = {}
        self._own_tensors: set[int] = set()
        self._hollows: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}
        self._probe = torch.empty(0)  # _apply moves it, so it has the layers' device
        for number, (make, alone) in enumerate(makers):
            layer = make()
            if not isinstance(layer, nn.Module):
                raise TypeError(
                    f"torchbraid (weft): expected the block of layer {number} to build a torch.nn.Module, "
                    f"got {type(layer).__name__}"
                )
            self.forms.append(form_of(layer, alone))
            self._keep(number, layer, number in own)

    def apply(self, fn: Callable[[Tensor], Tensor]) -> None:
        """Applies ``fn`` to the models, as ``nn.Module._apply`` does to this rank's layers."""
        self._probe = fn(self._probe)
        changed: dict[int, Tensor] = {}

        def change(tensor: Tensor) -> Tensor:
            if id(tensor) not in changed:
                dtype = fn(torch.empty(0, dtype=tensor.dtype, device=self._probe.device)).dtype
                changed[id(tensor)] = _hollow(tensor, dtype)
            return changed[id(tensor)]

        for model in self._models.values():
            _replace(model, lambda tensor: change(tensor) if tensor.is_meta else tensor)

    def maker(self) -> Callable[[int], nn.Module]:
        """Returns a factory of layers by number: a layer of this rank, or a new model with uninitialized weights."""
        filled: dict[int, Tensor] = {}

        def fill(tensor: Tensor) -> Tensor:
            if not tensor.is_meta:
                return tensor
            if id(tensor) not in filled:
                filled[id(tensor)] = _like(tensor, torch.empty_like(tensor, device=self._probe.device))
            return filled[id(tensor)]

        def make(number: int) -> nn.Module:
            if number in self.own:
                return self.own[number]
            model = _copy_sharing_tensors(self._models[number])
            _replace(model, fill)
            return model

        return make

    def _keep(self, number: int, layer: nn.Module, own: bool) -> None:
        tensors = [*layer.parameters(), *layer.buffers()]
        if tensors:
            self._probe = self._probe.to(tensors[0].device)
        if own:
            self.own[number] = layer
            self._own_tensors.update(id(tensor) for tensor in tensors)
            self._restore(tensors)
            return
        model = _copy_sharing_tensors(layer)
        _replace(model, self._hollow_for)
        self._models[number] = model

    def _hollow_for(self, tensor: Tensor) -> Tensor:
        if id(tensor) in self._own_tensors:
            return tensor
        known, hollow = self._hollows.get(id(tensor), (None, None))
        if known is None or known() is not tensor:  # ids of deleted objects are reused
            hollow = _hollow(tensor, tensor.dtype)
            self._hollows[id(tensor)] = (weakref.ref(tensor), hollow)
        return hollow

    def _restore(self, tensors: list[Tensor]) -> None:
        """Puts weights of this rank back into models of earlier layers that share them."""
        back = {}
        for tensor in tensors:
            known, hollow = self._hollows.get(id(tensor), (None, None))
            if known is not None and known() is tensor:
                back[id(hollow)] = tensor
        if back:
            for model in self._models.values():
                _replace(model, lambda tensor: back.get(id(tensor), tensor))


def _replace(module: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
    for part in module.modules():
        for place in (part._parameters, part._buffers):
            for name, tensor in place.items():
                if tensor is not None:
                    place[name] = change(tensor)


def _copy_sharing_tensors(module: nn.Module) -> nn.Module:
    memo: dict[int, Any] = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return copy.deepcopy(module, memo)


def _hollow(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return _like(tensor, torch.empty_like(tensor, dtype=dtype, device="meta"))


def _like(tensor: Tensor, values: Tensor) -> Tensor:
    return nn.Parameter(values, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else values.detach()
