"""Transfer of layers between networks of different depth: each layer is a linear combination of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from weft import _objects
from weft.communicator import Communicator

Stencil = list[tuple[int, float]]
"""The layers that a layer is computed from, with their weights."""
KINDS = ("injection", "linear")


def interpolation(targets: Iterable[int], coarse_layers: int, factor: int, kind: str) -> dict[int, Stencil]:
    """Returns the stencils of fine layers in terms of the layers of a network that is ``factor`` times less deep.

    "injection" repeats each layer; "linear" interpolates between neighbours and is constant after the last one.
    Raises ValueError for other kinds.
    """
    require_kind(kind)
    stencils: dict[int, Stencil] = {}
    for number in targets:
        left, position = divmod(number, factor)
        weight = position / factor
        if kind == "injection" or position == 0 or left + 1 >= coarse_layers:
            stencils[number] = [(left, 1.0)]
        else:
            stencils[number] = [(left, 1.0 - weight), (left + 1, weight)]
    return stencils


def restriction(targets: Iterable[int], fine_layers: int, factor: int, kind: str) -> dict[int, Stencil]:
    """Returns the stencils of coarse layers in terms of the layers of a network that is ``factor`` times deeper.

    "injection" takes every ``factor``-th layer; "linear" averages it with its neighbours (1/4, 1/2, 1/4).
    Raises ValueError for other kinds.
    """
    require_kind(kind)
    stencils: dict[int, Stencil] = {}
    for number in targets:
        centre = number * factor
        if kind == "injection" or centre == 0 or centre + 1 >= fine_layers:
            stencils[number] = [(centre, 1.0)]
        else:
            stencils[number] = [(centre - 1, 0.25), (centre, 0.5), (centre + 1, 0.25)]
    return stencils


def transposed(stencils: Mapping[int, Stencil]) -> dict[int, Stencil]:
    """Returns the stencils of the transposed operator, which transfers gradients in the other direction."""
    result: dict[int, Stencil] = {}
    for number, stencil in stencils.items():
        for source, weight in stencil:
            result.setdefault(source, []).append((number, weight))
    return result


@torch.no_grad()
def combine_layers(
    comm: Communicator | None, own: Mapping[int, Sequence[Tensor]], stencils: Mapping[int, Stencil]
) -> dict[int, list[Tensor]]:
    """Collective. Returns the layers that the stencils describe, as new tensors.

    Integers, such as the batch counter of batch normalization, are those of the first layer of a stencil.

    Args:
        comm: None if this process has all layers.
        own: the tensors of this rank's layers, by layer number. Each layer belongs to one rank.
        stencils: of the layers that this rank needs.
    """
    sources = {number for stencil in stencils.values() for number, _ in stencil}
    known: dict[int, Sequence[Tensor]] = dict(own)
    if comm is not None and comm.size > 1:
        missing = set().union(*_objects.all_gather(comm, sources - own.keys()))
        for part in _objects.all_gather(comm, {n: [t.cpu() for t in own[n]] for n in sorted(missing & own.keys())}):
            for number, tensors in part.items():
                known.setdefault(number, tensors)
    return {
        number: _weighted_sum([(known[n], weight) for n, weight in stencil]) for number, stencil in stencils.items()
    }


def _weighted_sum(terms: Sequence[tuple[Sequence[Tensor], float]]) -> list[Tensor]:
    result = [t.detach() * terms[0][1] if _is_number(t) else t.detach().clone() for t in terms[0][0]]
    for tensors, weight in terms[1:]:
        for total, tensor in zip(result, tensors, strict=True):
            if _is_number(total):
                total.add_(tensor.to(total.device), alpha=weight)
    return result


def _is_number(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def require_kind(kind: str) -> None:
    """Raises ValueError for unknown transfers."""
    if kind not in KINDS:
        raise ValueError(f"weft: expected the transfer to be one of {KINDS}, got {kind!r}")
