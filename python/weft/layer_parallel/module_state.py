"""State of a layer's modules: changes of their structure, and attributes that other ranks' copies of a layer need."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

_INTERNAL = frozenset(nn.Module().__dict__) - {"training"}
_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_CONTAINERS = (tuple, list, set, frozenset)

Place = tuple[dict[str, Any], str]
"""The dict of a module that holds an entry, and the entry's name."""


class ModuleWatch:
    """Notices parameters, buffers and submodules that were added, replaced or removed."""

    def __init__(self) -> None:
        self._entries: dict[int, list[tuple[dict[str, Any], str, Any]]] = {}
        self._places: dict[int, list[dict[str, Any]]] = {}
        self._flatten()

    def watch(self, layers: Mapping[int, nn.Module]) -> None:
        """Records the present state of these layers, by number."""
        for number, layer in layers.items():
            places = [place for part in layer.modules() for place in (part._parameters, part._buffers, part._modules)]
            self._places[number] = places
            self._entries[number] = [(place, name, value) for place in places for name, value in place.items()]
        self._flatten()

    def unchanged(self) -> bool:
        """Whether all layers have the recorded state. Called in every pass, so it does not visit modules."""
        if sum(map(len, self._all_places)) != len(self._all_entries):
            return False
        for place, name, value in self._all_entries:  # noqa: SIM110, a generator is slower
            if place.get(name) is not value:
                return False
        return True

    def changed(self) -> list[int]:
        """Returns the numbers of layers whose state differs from the recorded one."""
        return [
            number
            for number, entries in self._entries.items()
            if sum(map(len, self._places[number])) != len(entries)
            or any(place.get(name) is not value for place, name, value in entries)
        ]

    def _flatten(self) -> None:
        self._all_entries = [entry for entries in self._entries.values() for entry in entries]
        self._all_places = [place for places in self._places.values() for place in places]


class LentLayer:
    """A layer of this rank that other ranks evaluate in coarse steps, with copies of it.

    ``describe`` returns the state that the copies need besides the values of parameters and buffers.
    """

    def __init__(self, layer: nn.Module) -> None:
        self._structure = _structure(layer)
        self._objects = _objects(layer)

    def describe(self, layer: nn.Module) -> bytes:
        """Raises RuntimeError if an attribute was replaced by an object that cannot be sent."""
        structure = _structure(layer)
        module: bytes | str = b""
        if structure != self._structure:
            module = pickled_module(layer)
            self._structure, self._objects = structure, _objects(layer)
        attributes = {name: _plain_attributes(part) for name, part in layer.named_modules()}
        for name, part in layer.named_modules():
            for key, value in _other_attributes(part):
                if _identity(value) != self._objects.get((name, key)):
                    attributes[name][key] = _sendable(value, f"{name}.{key}" if name else key)
        return pickle.dumps((structure, attributes, module))


def update_copy(copy: nn.Module, description: bytes) -> nn.Module:
    """Brings a copy up to date and returns it, or a new copy if the structure of the layer changed.

    Raises RuntimeError if the copy cannot follow.
    """
    structure, attributes, module = pickle.loads(description)
    if _structure(copy) != structure:
        if isinstance(module, str) or not module:
            raise RuntimeError(
                "parameters, buffers or submodules were added, removed or replaced on the rank that owns the layer, "
                f"and its copy on this rank cannot follow{module and f' ({module})'}; make the same change on all "
                "ranks, or create a new LayerParallel"
            )
        copy = pickle.loads(module)
    for name, part in copy.named_modules():
        for key, value in attributes[name].items():
            part.__dict__[key] = pickle.loads(value.data) if isinstance(value, _Pickled) else value
    return copy


def describe_parts(layer: nn.Module) -> dict[str, Any]:
    """Returns the types, layouts of tensors and attributes of a layer's modules, by name: equal for equal layers."""
    found: dict[str, Any] = {}
    for name, part in layer.named_modules():
        found[f"the type of {name}" if name else "the type"] = type(part).__qualname__
        prefix = f"{name}." if name else ""
        for kind, tensors in (("parameter", part._parameters), ("buffer", part._buffers)):
            found.update({f"the {kind} {prefix}{key}": layout for key, layout in _layouts(tensors)})
        found.update({f"the attribute {prefix}{key}": value for key, value in _plain_attributes(part).items()})
        for key, value in _other_attributes(part):
            name_of_value = getattr(value, "__qualname__", type(value).__qualname__)
            found[f"the attribute {prefix}{key}"] = value.tolist() if isinstance(value, Tensor) else name_of_value
    return found


def kind_of(layer: nn.Module) -> bytes:
    """Returns a text that is equal for layers with the same structure and attributes but other weights.

    Empty for layers with hooks, which may do anything.
    """
    parts = list(layer.named_modules())
    if any(part._forward_hooks or part._forward_pre_hooks for _, part in parts):
        return b""
    attributes = [(name, _plain_attributes(part)) for name, part in parts]
    return repr((_structure(layer), attributes, _objects(layer))).encode()


class _Pickled:
    """A pickled value."""

    def __init__(self, data: bytes) -> None:
        self.data = data


def _structure(layer: nn.Module) -> list[Any]:
    return [
        (name, type(part).__module__, type(part).__qualname__, _layouts(part._parameters), _layouts(part._buffers))
        for name, part in layer.named_modules()
    ]


def _layouts(tensors: Mapping[str, Tensor | None]) -> list[Any]:
    return [(name, None if t is None else (tuple(t.shape), t.dtype)) for name, t in tensors.items()]


def _plain_attributes(part: nn.Module) -> dict[str, Any]:
    return {key: value for key, value in part.__dict__.items() if key not in _INTERNAL and _is_plain(value)}


def _other_attributes(part: nn.Module) -> Iterable[tuple[str, Any]]:
    return ((key, value) for key, value in part.__dict__.items() if key not in _INTERNAL and not _is_plain(value))


def _objects(layer: nn.Module) -> dict[tuple[str, str], Any]:
    return {
        (name, key): _identity(value) for name, part in layer.named_modules() for key, value in _other_attributes(part)
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, _PLAIN):
        return True
    if type(value) in _CONTAINERS:
        return all(map(_is_plain, value))
    return type(value) is dict and all(map(_is_plain, value)) and all(map(_is_plain, value.values()))


def _identity(value: Any) -> Any:
    return (id(value), value._version) if isinstance(value, Tensor) else id(value)


def _sendable(value: Any, name: str) -> _Pickled:
    try:
        return _Pickled(pickle.dumps(value.detach() if isinstance(value, Tensor) else value))
    except Exception as error:
        raise RuntimeError(
            f"the attribute {name!r} was replaced, but it cannot be sent to the ranks that have a copy of the layer "
            f"({error}); create a new LayerParallel"
        ) from None


def pickled_module(layer: nn.Module) -> bytes | str:
    """Returns the pickled layer, or the reason why it cannot be pickled."""
    try:
        return pickle.dumps(layer)
    except Exception as error:
        return f"it cannot be pickled: {error}"
