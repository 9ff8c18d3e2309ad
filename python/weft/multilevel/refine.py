"""Refinement in depth: a network of more layers whose weights are interpolated from those of a trained network."""

from __future__ import annotations

import copy
import operator
import pickle
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from weft import _objects
from weft.communicator import Communicator
from weft.errors import Disagreement
from weft.layer_parallel.module_state import describe_parts, pickled_module
from weft.layer_parallel.network import LayerParallel
from weft.layer_parallel.serial import SerialNetwork

from .transfer import Stencil, combine_layers, interpolation, require_kind

Network = TypeVar("Network", LayerParallel, SerialNetwork, nn.Sequential, nn.ModuleList)
Optimizer = TypeVar("Optimizer", bound=torch.optim.Optimizer)


def refine(
    net: Network, factor: int = 2, interpolation: str = "injection", *, optimizer: Optimizer | None = None
) -> tuple[Network, Optimizer | None]:
    """Returns a network with ``factor`` times as many layers, and an optimizer for it.

    Collective if ``net`` is a LayerParallel; its layers are redistributed. The end time stays the same, so the steps
    become shorter: ``dt`` is divided by ``factor``. Layers that are not called with ``dt`` (of the form "plain", or in
    an nn.Sequential) need an attribute ``dt``, which is divided. The layers of an nn.ModuleList may have one; otherwise
    the loop over them determines the step size.

    Args:
        net: a LayerParallel, its ``serial()``, an nn.Sequential or an nn.ModuleList of equal layers. It stays usable.
        factor: how many layers replace each layer.
        interpolation: "injection" repeats each layer; "linear" interpolates parameters, floating-point buffers and the
            optimizer's state between neighbouring layers and repeats the last layer.
        optimizer: an optimizer with parameters of ``net``, and possibly others. The result has the same class and
            options, the parameters of the new network and the interpolated state (SGD's momentum, Adam's moments and
            steps). It shares the state of the other parameters, so do not use the old optimizer afterwards.

    Raises ValueError on every rank if the layers differ or share parameters, or for invalid arguments, and
    Disagreement if the arguments differ between ranks.
    """
    return _Refinement(net, factor, interpolation, optimizer).run()


@dataclass
class _LayerFacts:
    """Properties of a layer that all ranks know. Layers of a network are equal if ``parts`` and ``state`` are."""

    parts: dict[str, Any]
    state: dict[str, Any]  # layout of the optimizer's state
    groups: list[int | None]  # for each parameter, its group in the optimizer
    trainable: list[bool]
    values: list[dict[str, Any]]  # for each parameter, entries of its optimizer state that are not tensors


class _Refinement:
    def __init__(self, net: Any, factor: int, kind: str, optimizer: torch.optim.Optimizer | None) -> None:
        self._net, self._factor, self._kind, self._optimizer = net, factor, kind, optimizer
        self._comm: Communicator | None = None
        if isinstance(net, LayerParallel):
            self._own = {int(number): layer for number, layer in net.layers.items()}
            self._count, self._forms, self._comm = net.total_layers, net.forms, net.comm
            self._shared = net._sharing.layers()
        elif isinstance(net, SerialNetwork):
            self._own = {int(number): layer for number, layer in net.layers.items()}
            self._count, self._forms = len(self._own), net.forms
            self._shared = _sharing_layers(self._own)
        elif isinstance(net, nn.Sequential | nn.ModuleList):
            self._own = dict(enumerate(net))
            form = "plain" if isinstance(net, nn.Sequential) else "loop"
            self._count, self._forms = len(net), [form] * len(net)
            self._shared = _sharing_layers(self._own)
        else:
            raise TypeError(
                "weft: refine: expected a LayerParallel, its serial(), an nn.Sequential or an nn.ModuleList, got "
                f"{type(net).__name__}"
            )

    def run(self) -> Any:
        self._facts = self._gather_facts()
        self._require_equal_layers()
        template = self._template()
        if isinstance(self._net, LayerParallel):
            refined: Any = self._net.with_layers(
                lambda number: copy.deepcopy(template), self._count * self._factor, self._forms[0]
            )
            layers = {int(number): layer for number, layer in refined.layers.items()}
        else:
            layers = {number: copy.deepcopy(template) for number in range(self._count * self._factor)}
            refined = self._serial(list(layers.values()))
        stencils = interpolation(layers, self._count, self._factor, self._kind)
        values = combine_layers(self._comm, {n: self._tensors(layer) for n, layer in self._own.items()}, stencils)
        states = {number: self._fill(layer, values[number], stencils[number]) for number, layer in layers.items()}
        return refined, self._refined_optimizer(layers, states, stencils)

    # ---- validation

    def _gather_facts(self) -> dict[int, _LayerFacts]:
        """Collective. Returns the facts of all layers. Raises the same error on every rank."""
        groups = None if self._optimizer is None else len(self._optimizer.param_groups)
        arguments = (
            f"factor={self._factor!r}, interpolation={self._kind!r}, "
            f"optimizer={type(self._optimizer).__name__} with {groups} parameter groups"
        )
        mine = (arguments, {number: self._facts_of(layer) for number, layer in self._own.items()})
        parts = [mine] if self._comm is None else _objects.all_gather(self._comm, mine)
        for rank, (other, _) in enumerate(parts):
            if other != parts[0][0]:
                raise Disagreement(
                    f"weft: refine: the arguments differ between ranks (rank 0: {parts[0][0]}, rank {rank}: {other})"
                )
        try:
            factor = operator.index(self._factor)
        except TypeError:
            factor = 0
        if factor < 2:
            raise ValueError(f"weft: refine: expected factor to be an integer of at least 2, got {self._factor!r}")
        require_kind(self._kind)
        return {number: facts for _, part in parts for number, facts in part.items()}

    def _facts_of(self, layer: nn.Module) -> _LayerFacts:
        parameters = list(layer.named_parameters())
        groups = {} if self._optimizer is None else _group_numbers(self._optimizer)
        layout: dict[str, Any] = {}
        values: list[dict[str, Any]] = []
        for name, parameter in parameters:
            state = self._state_of(parameter)
            layout[f"the optimizer's state of {name}"] = sorted(state)
            values.append({key: value for key, value in state.items() if not isinstance(value, Tensor)})
        return _LayerFacts(
            describe_parts(layer),
            layout,
            [groups.get(id(parameter)) for _, parameter in parameters],
            [parameter.requires_grad for _, parameter in parameters],
            values,
        )

    def _require_equal_layers(self) -> None:
        if self._count == 0:
            raise ValueError("weft: refine: the network has no layers")
        first = self._facts[0]
        for number in range(1, self._count):
            facts = self._facts[number]
            before = {"the form": self._forms[0], **first.parts, **first.state}
            after = {"the form": self._forms[number], **facts.parts, **facts.state}
            for name in [*before, *after]:
                if before.get(name) != after.get(name):
                    raise ValueError(
                        f"weft: refine: layers 0 and {number} differ: {name} is {_shown(before, name)} in layer 0 and "
                        f"{_shown(after, name)} in layer {number}; only networks of equal layers can be refined. Keep "
                        "other layers outside the network"
                    )
        if self._shared:
            raise ValueError(
                f"weft: refine: the layers {', '.join(map(str, self._shared))} share parameters or modules, so a "
                "deeper network is not defined; use a separate module for each layer"
            )
        if self._forms[0] == "plain" and "the attribute dt" not in first.parts and not self._dt_is_a_tensor():
            raise ValueError(
                "weft: refine: the layers are not called with a step size and have no attribute 'dt', so their steps "
                "cannot be divided; give them one, or use LayerParallel with form='residual' or 'step'"
            )

        known = [group for facts in self._facts.values() for group in facts.groups if group is not None]
        if self._optimizer is not None and not known:
            raise ValueError("weft: refine: the optimizer has no parameters of the network")

    def _dt_is_a_tensor(self) -> bool:
        return any(name in self._facts[0].parts for name in ("the parameter dt", "the buffer dt"))

    # ---- construction

    def _template(self) -> nn.Module:
        """Collective. Returns a copy of a layer, for its structure. Only ranks without layers need another rank's."""
        pickled: bytes | str = b""
        if self._comm is not None and self._count < self._comm.size:
            mine = pickled_module(self._own[0]) if 0 in self._own else b""
            pickled = next(part for part in _objects.all_gather(self._comm, mine) if part)
            if isinstance(pickled, str):
                raise ValueError(
                    f"weft: refine: there are fewer layers than ranks, and the layer cannot be sent: {pickled}"
                )
        template: nn.Module = (
            copy.deepcopy(next(iter(self._own.values()))) if self._own else pickle.loads(pickled)  # type: ignore[arg-type]
        )
        template.zero_grad()
        return template

    def _serial(self, layers: list[nn.Module]) -> nn.Module:
        if isinstance(self._net, SerialNetwork):
            numbered = {str(number): layer for number, layer in enumerate(layers)}
            return SerialNetwork(numbered, [self._forms[0]] * len(layers), self._net.dt * self._count)
        refined = copy.copy(self._net)  # keeps the class and attributes of a subclass
        refined.__dict__["_modules"] = OrderedDict((str(number), layer) for number, layer in enumerate(layers))
        return refined

    def _tensors(self, layer: nn.Module) -> list[Tensor]:
        """Returns the tensors of a layer that are interpolated: parameters, buffers and state of the optimizer."""
        states = [self._state_of(parameter) for parameter in layer.parameters()]
        kept = [state[key] for state in states for key in sorted(state) if isinstance(state[key], Tensor)]
        return [*layer.parameters(), *layer.buffers(), *kept]

    def _state_of(self, parameter: Tensor) -> dict[str, Any]:
        return {} if self._optimizer is None else self._optimizer.state.get(parameter, {})

    @torch.no_grad()
    def _fill(self, layer: nn.Module, values: list[Tensor], stencil: Stencil) -> list[dict[str, Any]]:
        """Assigns the interpolated values to a new layer. Returns the optimizer's state of its parameters."""
        source = self._facts[stencil[0][0]]
        parameters = list(layer.parameters())
        rest = iter(values)
        for tensor in [*parameters, *layer.buffers()]:
            tensor.copy_(next(rest))
        dt: Any = getattr(layer, "dt", None) if self._forms[0] in ("plain", "loop") else None
        if isinstance(dt, Tensor):
            dt.div_(self._factor)
        elif dt is not None:
            layer.dt = dt / self._factor
        states: list[dict[str, Any]] = []
        keys = source.state.values()
        for parameter, names, plain, trainable in zip(parameters, keys, source.values, source.trainable, strict=True):
            parameter.requires_grad_(trainable)
            state = {}
            for key in names:
                if key in plain:
                    state[key] = copy.deepcopy(plain[key])
                else:
                    value = next(rest)
                    state[key] = value.to(parameter.device) if value.shape == parameter.shape else value
            states.append(state)
        return states

    def _refined_optimizer(
        self,
        layers: Mapping[int, nn.Module],
        states: Mapping[int, Sequence[dict[str, Any]]],
        stencils: Mapping[int, Any],
    ) -> torch.optim.Optimizer | None:
        if self._optimizer is None:
            return None
        replaced = {id(parameter) for layer in self._own.values() for parameter in layer.parameters()}
        groups: list[dict[str, Any]] = []
        state: defaultdict[Tensor, Any] = defaultdict(dict)
        for group in self._optimizer.param_groups:
            kept = [parameter for parameter in group["params"] if id(parameter) not in replaced]
            state.update({p: dict(self._optimizer.state[p]) for p in kept if p in self._optimizer.state})
            groups.append({**group, "params": kept})
        for number, layer in layers.items():
            source = self._facts[stencils[number][0][0]].groups
            for parameter, group_number, values in zip(layer.parameters(), source, states[number], strict=True):
                if group_number is not None:
                    groups[group_number]["params"].append(parameter)
                if values:
                    state[parameter] = values
        refined = copy.copy(self._optimizer)
        refined.defaults = dict(self._optimizer.defaults)
        refined.param_groups, refined.state = groups, state
        return refined


def _group_numbers(optimizer: torch.optim.Optimizer) -> dict[int, int]:
    return {id(p): number for number, group in enumerate(optimizer.param_groups) for p in group["params"]}


def _sharing_layers(layers: Mapping[int, nn.Module]) -> list[int]:
    users: dict[int, set[int]] = {}
    for number, layer in layers.items():
        for item in (*layer.modules(), *layer.parameters(), *layer.buffers()):
            users.setdefault(id(item), set()).add(number)
    return sorted(set().union(*(numbers for numbers in users.values() if len(numbers) > 1)))


def _shown(facts: Mapping[str, Any], name: str) -> str:
    """Returns the text of a fact for an error message."""
    if name not in facts:
        return "missing"
    value = facts[name]
    if name.startswith(("the parameter ", "the buffer ")) and value is not None:
        return f"{value[1]} of shape {value[0]}"
    return repr(value) if not isinstance(value, str) else value
