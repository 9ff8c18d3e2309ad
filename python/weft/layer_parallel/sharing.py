"""Modules that occur in several layers of a network: their parameters and their buffers."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase


@dataclass
class _Seen:
    """A module or tensor with the layers and ranks that use it. ``key`` names its first use, on all ranks alike."""

    reference: weakref.ref[Any]
    key: str
    is_parameter: bool
    layers: set[int] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    places: list[tuple[int, dict[str, Any], str]] = field(default_factory=list)


class Sharing:
    """Records the layers of a network in order, and answers which of their modules and tensors are shared."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}

    def add(self, number: int, owner: int, layer: nn.Module, keep: bool) -> None:
        """Every rank adds all layers; it keeps those that it owns."""
        for path, part in layer.named_modules():
            self._note(part, f"{number}.{path}", number, owner)
            for place in (part._parameters, part._buffers):
                for name, tensor in place.items():
                    if tensor is not None:
                        seen = self._note(tensor, f"{number}.{path}.{name}", number, owner)
                        if keep:
                            seen.places.append((number, place, name))

    def finish(self) -> None:
        """Discards the entries of tensors that only one layer uses."""
        self._seen = {key: seen for key, seen in self._seen.items() if len(seen.layers) > 1}

    def layers(self) -> list[int]:
        """Returns the numbers of the layers that share modules or tensors."""
        return sorted(set().union(*(seen.layers for seen in self._seen.values())))

    def parameters(self, own: Mapping[int, nn.Module]) -> dict[str, tuple[Tensor, int]]:
        """Returns the parameters of this rank that other ranks use too, with the number of ranks that use them.

        Raises RuntimeError if a tied parameter was replaced, because the other ranks' parameters are unknown.
        """
        shared: dict[str, tuple[Tensor, int]] = {}
        in_modules: set[int] = set()
        for part, key, seen in self._shared_parts(own):
            if len(seen.ranks) > 1:
                for name, parameter in part._parameters.items():
                    if parameter is not None:
                        shared[f"{key}.{name}"] = (parameter, len(seen.ranks))
                        in_modules.add(id(part._parameters))
        for seen in self._seen.values():
            places = [place for place in seen.places if id(place[1]) not in in_modules]
            tied: Any = seen.reference()
            if len(seen.ranks) < 2 or not places or not seen.is_parameter:
                continue
            for number, place, name in places:
                if tied is None or place.get(name) is not tied:
                    raise RuntimeError(
                        f"weft: layer {number}: the parameter {name!r} is tied to a layer of another rank and was "
                        "replaced; replace it before LayerParallel is created, or change its values in place"
                    )
            shared[seen.key] = (tied, len(seen.ranks))
        return shared

    def buffered(self, own: Mapping[int, nn.Module]) -> dict[int, list[tuple[str, nn.Module]]]:
        """Returns, for each layer of this rank, its modules whose buffers other layers use too, with their keys."""
        found: dict[int, dict[int, tuple[str, nn.Module]]] = {}
        for number, layer in own.items():
            for part, key, _ in self._shared_parts({number: layer}):
                if any(buffer is not None for buffer in part._buffers.values()):
                    found.setdefault(number, {})[id(part)] = (key, part)
            for part in layer.modules():
                for buffer in part._buffers.values():
                    if buffer is not None and (seen := self._find(buffer)) is not None:
                        found.setdefault(number, {}).setdefault(id(part), (seen.key, part))
        return {number: list(parts.values()) for number, parts in found.items()}

    def _note(self, item: Any, key: str, number: int, owner: int) -> _Seen:
        seen = self._find(item)
        if seen is None:
            seen = self._seen[id(item)] = _Seen(weakref.ref(item), key, isinstance(item, nn.Parameter))
        seen.layers.add(number)
        seen.ranks.add(owner)
        return seen

    def _find(self, item: Any) -> _Seen | None:
        seen = self._seen.get(id(item))
        return seen if seen is not None and seen.reference() is item else None  # ids of deleted objects are reused

    def _shared_parts(self, own: Mapping[int, nn.Module]) -> Iterator[tuple[nn.Module, str, _Seen]]:
        """Yields each module that is shared, or part of a shared one, with its key."""
        visited: set[int] = set()

        def visit(part: nn.Module, key: str, parent: _Seen | None) -> Iterator[tuple[nn.Module, str, _Seen]]:
            seen = self._find(part)
            if seen is not None:
                key = seen.key
            seen = seen or parent
            if seen is not None:
                if id(part) in visited:
                    return
                visited.add(id(part))
                yield part, key, seen
            for name, child in part._modules.items():
                if child is not None:
                    yield from visit(child, f"{key}.{name}", seen)

        for number, layer in own.items():
            yield from visit(layer, str(number), None)


BufferUpdates = dict[tuple[int, int], dict[str, dict[str, Any]]]
"""Changes of shared buffers in a pass: by micro-batch and layer, key of the module and name of the buffer."""


class SharedBuffers:
    """Evaluates a layer that shares buffers with others, and undoes and returns its changes of them.

    The layers are evaluated at the same time, so no evaluation sees the changes of the layers before it. The changes
    are combined afterwards, in the order of the layers.
    """

    def __init__(self, parts: list[tuple[str, nn.Module]]) -> None:
        self._parts = parts
        self._before = [
            {name: (buffer, buffer.detach().clone()) for name, buffer in part._buffers.items() if buffer is not None}
            for _, part in parts
        ]

    def restore(self) -> None:
        for (_, part), before in zip(self._parts, self._before, strict=True):
            for name, (buffer, value) in before.items():
                part._buffers[name] = buffer
                buffer.data.copy_(value)  # .data: graphs that saved the buffer stay valid

    def take_changes(self) -> dict[str, dict[str, Any]]:
        """Raises TypeError for changes that cannot be combined."""
        changes = {
            key: _changes(part, {name: value for name, (_, value) in before.items()})
            for (key, part), before in zip(self._parts, self._before, strict=True)
        }
        self.restore()
        return changes


def _changes(part: nn.Module, before: dict[str, Tensor]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name, old in before.items():
        new = part._buffers[name]
        if new is None or (new.shape == old.shape and new.dtype == old.dtype and torch.equal(new, old)):
            continue
        if not new.is_floating_point() and not new.is_complex():
            changes[name] = new - old
        elif name in _running_statistics(part):
            weight = _weight(part, before["num_batches_tracked"] + 1 if part.momentum is None else None)
            changes[name] = (new.detach().double() - (1 - weight) * old.double()) / weight
        else:
            raise TypeError(
                f"it changes the buffer {name!r} of a {type(part).__name__} that other layers share. weft evaluates "
                "these layers at the same time and can combine only batch normalization and integers; "
                "use a separate module for each layer"
            )
    return changes


def _running_statistics(part: nn.Module) -> tuple[str, ...]:
    """Returns the names of buffers that are running means over batches. A module may name its own."""
    own = ("running_mean", "running_var") if isinstance(part, _NormBase) else ()
    return getattr(part, "running_statistics", own)


def _weight(part: Any, batches: Tensor | None) -> float:
    """Returns the weight of the latest batch in the running statistics."""
    return 1 / float(batches) if batches is not None else float(part.momentum)


@torch.no_grad()
def combine(updates: BufferUpdates, modules: dict[str, nn.Module]) -> None:
    """Applies the changes of all layers, in order, to this rank's modules, by key."""
    for place in sorted(updates):
        for key, changes in updates[place].items():
            part = modules.get(key)
            if part is None:
                continue
            for name, change in changes.items():
                if not change.is_floating_point():
                    part.get_buffer(name).data.add_(change)  # .data: graphs that saved the buffer stay valid
            for name, change in changes.items():
                if name in _running_statistics(part):
                    batches = part.get_buffer("num_batches_tracked") if part.momentum is None else None
                    buffer = part.get_buffer(name).data
                    buffer.lerp_(change.to(buffer), _weight(part, batches))
