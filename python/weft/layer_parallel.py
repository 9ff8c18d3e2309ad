"""LayerParallel: a deep network whose layers are distributed over ranks and evaluated concurrently."""

from __future__ import annotations

import re
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from . import _bindings, _objects
from ._solve import Solve, SolveStatistics, per_level
from .communicator import Communicator
from .errors import LayerError

__all__ = ["LayerParallel", "SerialNetwork", "Solve", "SolveStatistics"]

FORMS = ("residual", "step", "plain")
_LAYER = re.compile(r"\blayer \d+ \(")  # the name of a layer in an error of the library
_LISTS = (Sequence, nn.Sequential, nn.ModuleList)
State: TypeAlias = "Tensor | tuple[Tensor, ...]"
"""A state of the network between two layers."""


class LayerParallel(nn.Module):
    """A network whose layers are distributed over the ranks of ``comm``. Collective.

    Multigrid solves forward and backward. The result is exact once the solves have converged; see ``statistics``. The
    input is that of rank 0, which also gets the output; the other ranks get zeros that are joined to the graph.
    ``compose`` runs the layers before and after the network on rank 0.

    Args:
        layers: a sequence of modules, or a function from a layer number to its module. Every rank creates all layers in
            the same order, so that a seed gives the same weights on any number of ranks, and keeps those it needs.
        steps: the number of layers, if ``layers`` is a function.
        tf: the end time; the step size ``dt`` is ``tf`` divided by the number of layers.
        form: how a layer computes the next state, for all layers or one per layer: "residual" is ``x + dt * layer(x)``,
            "step" is ``layer(x, dt)`` and "plain" is ``layer(x)``.
        levels: the number of multigrid levels; with 1 the layers are evaluated one after the other.
        cfactor: the coarsening factor between levels: a number, or ``{level: number}``.
        min_coarse: the smallest number of points on a coarse level.
        forward, backward: options of the two solves.
        backward_levels, backward_cfactor: by default those of the forward solve.
        replicated: all ranks have the same input, output and loss, and gradients are those of one of them.
        coarsen, refine: functions of a state and a level that transfer states between levels.
        keep_states: keep the states of the last forward for ``states``.

    Raises ValueError or TypeError for arguments that do not fit, and LayerError if a layer fails.
    """

    def __init__(
        self,
        comm: Communicator,
        layers: Sequence[nn.Module] | Callable[[int], nn.Module],
        *,
        steps: int | None = None,
        tf: float = 1.0,
        form: str | Sequence[str] = "residual",
        levels: int = 2,
        cfactor: int | Mapping[int, int] = 4,
        min_coarse: int = 2,
        forward: Solve | None = None,
        backward: Solve | None = None,
        backward_levels: int | None = None,
        backward_cfactor: int | Mapping[int, int] | None = None,
        replicated: bool = False,
        coarsen: Callable[[State, int], State] | None = None,
        refine: Callable[[State, int], State] | None = None,
        keep_states: bool = False,
    ) -> None:
        super().__init__()
        count = _count(layers, steps)
        self.comm = comm
        self.tf = tf
        self.total_layers = count
        self.replicated = replicated
        self._forms = _forms(form, count)
        self._solves = (forward or Solve(), backward or Solve())
        if callable(self._solves[1].guess):
            raise ValueError("weft: only the forward solve accepts a function as the initial guess")
        self._description = {
            "tf": tf,
            "forward_grid": _grid(levels, cfactor, min_coarse),
            "backward_grid": _grid(
                levels if backward_levels is None else backward_levels,
                cfactor if backward_cfactor is None else backward_cfactor,
                min_coarse,
            ),
            "forward": self._solves[0].describe(),
            "backward": self._solves[1].describe(),
            "replicated": replicated,
            "coarsen": coarsen,
            "refine": refine,
            "keep_states": keep_states,
            "guess": self._guess,
        }
        begin, end, borrowed, owners, self.levels, self.backward_levels = _bindings.load().layer_parallel_plan(
            count, comm.size, comm.rank, self._description
        )
        self.own = range(begin, end)
        made, shared = _make_layers(_maker(layers), {*self.own, *borrowed}, owners, comm.rank)
        self.layers = nn.ModuleDict({str(number): made[number] for number in self.own})
        self._copies = {number: made[number] for number in borrowed}  # neither trained nor saved by this rank
        self._extras: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self._warned = False
        self._watched = list(self._watch())
        self._register_load_state_dict_pre_hook(self._leave_out_other_layers)
        self._network = self._create(made, shared)

    # ---- evaluation

    def forward(self, x: State | None = None, *args: Any, **kwargs: Any) -> State:
        """Collective. Returns the state after the last layer.

        Args:
            x: the input: a tensor or a tuple of tensors. Rank 0 passes it; with ``replicated`` every rank does.
            args, kwargs: passed to every layer, the same on all ranks. Each rank gets the contribution of its layers to
                the gradients of these tensors.

        Raises LayerError on all ranks if a layer fails.
        """
        self._rebind_changed()
        extras = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.requires_grad]
        prepare = partial(self._use, args, kwargs) if args or kwargs or self._extras != ((), {}) else None
        try:
            y = self._network.forward(x, extras, prepare)
        except RuntimeError as error:
            if isinstance(error, LayerError) or not _LAYER.search(str(error)):
                raise
            raise LayerError(str(error)) from None  # another rank's layer failed, reported as PeerLost
        self._warn_if_stalled("forward", 0)
        return y

    def compose(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Returns ``function(*args, **kwargs)`` on rank 0, and on other ranks a zero that joins the arguments' graphs.

        Use it for the layers before and after the network and for the loss. With ``replicated`` the function runs on
        every rank.
        """
        if self.replicated or self.comm.rank == 0:
            return function(*args, **kwargs)
        return zero_joined_to((args, kwargs))

    @property
    def statistics(self) -> tuple[SolveStatistics, SolveStatistics]:
        """Statistics of the last forward and the last backward solve on this rank."""
        forward, backward = self._network.statistics()
        return SolveStatistics(**forward), SolveStatistics(**backward)

    @property
    def solves(self) -> tuple[Solve, Solve]:
        """Options of the forward and the backward solve. If you set them, set the same on all ranks."""
        return self._solves

    @solves.setter
    def solves(self, solves: tuple[Solve, Solve]) -> None:
        self._solves = solves
        self._network.set_solvers(solves[0].describe(), solves[1].describe())

    def states(self) -> list[tuple[int, State]]:
        """Returns (point, state) for this rank's points after forward (``keep_states``). Point k precedes layer k."""
        return self._network.states()

    def release_states(self) -> None:
        """Releases the states that ``keep_states`` keeps; the next forward would release them too."""
        self._network.release_states()

    # ---- weights

    def train(self, mode: bool = True) -> LayerParallel:
        for copy in self._copies.values():
            copy.train(mode)
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LayerParallel:
        super()._apply(fn, recurse)
        for copy in self._copies.values():
            copy._apply(fn, recurse)
        return self

    def full_state_dict(self) -> dict[str, Tensor]:
        """Collective. Returns the state of all layers on every rank.

        It can be loaded on any number of ranks, and by ``serial()``.
        """
        pieces = _objects.all_gather(self.comm, {key: value.cpu() for key, value in self.state_dict().items()})
        return {key: value for piece in pieces for key, value in piece.items()}

    def serial(self) -> SerialNetwork | None:
        """Collective. Returns a plain module with copies of all layers on rank 0, and None on other ranks."""
        pieces = _objects.gather(self.comm, dict(self.layers.items()))
        if self.comm.rank != 0:
            return None
        return SerialNetwork({k: v for piece in pieces for k, v in piece.items()}, self._forms, self.tf)

    def __deepcopy__(self, memo: dict[int, Any]) -> LayerParallel:
        raise TypeError(
            "weft: LayerParallel cannot be copied; use serial() for a plain module, or full_state_dict() for its state"
        )

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "weft: LayerParallel cannot be pickled; save full_state_dict(), which can be loaded on any number of ranks"
        )

    def extra_repr(self) -> str:
        return (
            f"layers {self.own.start}..{self.own.stop - 1} of {self.total_layers} on rank {self.comm.rank} of "
            f"{self.comm.size}, levels={self.levels}, tf={self.tf}"
        )

    # ---- inner workings

    def _create(self, made: dict[int, nn.Module], shared: list[tuple[Tensor | None, Tensor]]) -> Any:
        layers = {}
        for number, module in made.items():
            layers[number] = {
                "function": self._function(module, self._forms[number]),
                "form": self._forms[number],
                "parameters": list(module.parameters()),
                "buffers": list(module.buffers()),
                "name": type(module).__name__,
            }
        return _bindings.load().LayerParallel(self.comm._id, self.total_layers, layers, shared, self._description)

    def _function(self, module: nn.Module, form: str) -> Callable[[State, float], State]:
        me = weakref.proxy(self)  # avoids a cycle: the library's object, which self owns, owns this function

        def evaluate(x: State, dt: float) -> State:
            args, kwargs = me._extras
            return module(x, dt, *args, **kwargs) if form == "step" else module(x, *args, **kwargs)

        return evaluate

    def _use(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._extras = (args, kwargs)

    def _guess(self, time: float) -> State:
        guess = self._solves[0].guess
        if not callable(guess):
            raise TypeError(f"weft: expected a function as the initial guess, got {guess!r}")
        return guess(time)

    def _watch(self) -> Iterator[tuple[int, dict[str, Any], str, Any]]:
        """Yields every parameter and buffer with its layer number and the dict that holds it."""
        for number, module in [*((int(name), layer) for name, layer in self.layers.items()), *self._copies.items()]:
            for part in module.modules():
                for place in (part._parameters, part._buffers):
                    for name, value in place.items():
                        yield number, place, name, value

    def _rebind_changed(self) -> None:
        """Passes replaced tensors (``module.weight = ...``) to the library; otherwise their gradients would be lost."""
        changed = {number for number, place, name, value in self._watched if place.get(name) is not value}
        if not changed:
            return
        for number in changed:
            module = self._copies.get(number) or self.layers[str(number)]
            self._network.rebind(number, list(module.parameters()), list(module.buffers()))
        self._watched = list(self._watch())

    def _warn_if_stalled(self, direction: str, which: int) -> None:
        if self._warned or (self.comm.size == 1 and self.levels == 1):
            return
        statistics = self.statistics[which]
        if statistics.stalled:
            self._warned = True
            warnings.warn(
                f"weft: the {direction} solve of LayerParallel did not converge: its residual went from "
                f"{statistics.known[0]:.3g} to {statistics.known[-1]:.3g} in {statistics.iterations} iterations; "
                "use more iterations, fewer levels, a smaller cfactor or a smaller tf",
                stacklevel=3,
            )

    def _leave_out_other_layers(self, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        others = {f"{prefix}layers.{number}." for number in range(self.total_layers) if number not in self.own}
        for key in list(state_dict):
            end = key.find(".", len(prefix) + len("layers."))
            if end > 0 and key[: end + 1] in others:
                del state_dict[key]


class SerialNetwork(nn.Module):
    """The same network as a plain module that evaluates its layers in order. Its state_dict has the same keys."""

    def __init__(self, layers: Mapping[str, nn.Module], forms: Sequence[str], tf: float) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(dict(layers))
        self.forms = list(forms)
        self.dt = tf / len(self.forms)

    def forward(self, x: State, *args: Any, **kwargs: Any) -> State:
        for number, form in enumerate(self.forms):
            layer = self.layers[str(number)]
            y = layer(x, self.dt, *args, **kwargs) if form == "step" else layer(x, *args, **kwargs)
            x = _advance(x, y, self.dt) if form == "residual" else y
        return x


def zero_joined_to(arguments: Any) -> Tensor:
    """Returns a zero whose graph contains the tensors among ``arguments``, so that all ranks take part in backward."""
    zero = torch.zeros(())
    for leaf in tree_leaves(arguments):
        if isinstance(leaf, Tensor) and leaf.requires_grad:
            # A sum of no elements is zero even if the leaf contains NaN.
            zero = zero.to(leaf.device) + leaf.flatten()[:0].sum()
    return zero


def _advance(x: State, y: State, dt: float) -> State:
    if isinstance(x, Tensor):
        if not isinstance(y, Tensor):
            raise TypeError(f"weft: expected the layer to return a tensor, got {type(y).__name__}")
        return torch.add(x, y, alpha=dt)
    return tuple(torch.add(a, b, alpha=dt) for a, b in zip(x, y, strict=True))


def _maker(layers: Sequence[nn.Module] | Callable[[int], nn.Module]) -> Callable[[int], nn.Module]:
    return layers.__getitem__ if isinstance(layers, _LISTS) else layers


def _count(layers: Sequence[nn.Module] | Callable[[int], nn.Module], steps: int | None) -> int:
    if isinstance(layers, _LISTS):
        if steps is not None and steps != len(layers):
            raise ValueError(f"weft: got {len(layers)} layers and steps={steps}; omit steps")
        count = len(layers)
    elif steps is None:
        raise ValueError("weft: layers is a function; pass the number of layers as steps=")
    else:
        count = steps
    if count < 1:
        raise ValueError(f"weft: expected at least one layer, got {count}")
    return count


def _forms(form: str | Sequence[str], count: int) -> list[str]:
    forms = [form] * count if isinstance(form, str) else list(form)
    if len(forms) != count or any(name not in FORMS for name in forms):
        raise ValueError(f"weft: expected form to be one of {FORMS}, or a list of {count} of them, got {form!r}")
    return forms


def _grid(levels: int, cfactor: int | Mapping[int, int], min_coarse: int) -> dict[str, Any]:
    return {"levels": levels, "cfactor": per_level(cfactor, 2), "min_coarse": min_coarse}


@dataclass
class _Seen:
    parameter: weakref.ref[Tensor]
    like: Tensor
    ranks: set[int] = field(default_factory=set)


def _make_layers(
    make: Callable[[int], nn.Module],
    needed: set[int],
    owners: Sequence[int],
    rank: int,
) -> tuple[dict[int, nn.Module], list[tuple[Tensor | None, Tensor]]]:
    """Returns the needed layers by number, and the parameters that layers of several ranks share."""
    made: dict[int, nn.Module] = {}
    seen: dict[int, _Seen] = {}
    order: list[_Seen] = []
    for number, owner in enumerate(owners):
        module = make(number)
        if not isinstance(module, nn.Module):
            raise TypeError(f"weft: expected layer {number} to be a torch.nn.Module, got {type(module).__name__}")
        for parameter in module.parameters():
            known = seen.get(id(parameter))
            if known is None or known.parameter() is not parameter:  # ids of deleted objects are reused
                known = _Seen(weakref.ref(parameter), torch.empty_like(parameter, device="meta"))
                seen[id(parameter)] = known
                order.append(known)
            known.ranks.add(owner)
        if number in needed:
            made[number] = module
    shared: list[tuple[Tensor | None, Tensor]] = []
    for known in order:
        if len(known.ranks) > 1:
            held = known.parameter()
            if held is not None:
                held._weft_copies = len(known.ranks)  # type: ignore[attr-defined]
            shared.append((held if rank in known.ranks else None, known.like))
    return made, shared
