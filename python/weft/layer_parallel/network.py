"""LayerParallel: a deep network whose layers are distributed over ranks and evaluated concurrently."""

from __future__ import annotations

import math
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves

from weft import _bindings, _objects
from weft.communicator import Communicator
from weft.errors import LayerError

from . import sharing
from .controller import IterationController
from .layer_pass import HeldLayer, Pass
from .loss_call import LossCall
from .module_state import LentLayer, ModuleWatch
from .repetition import BufferValues, RandomState, RepeatableFunction
from .serial import SerialNetwork, State
from .sharing import Sharing
from .solve import Solve, SolveStatistics, per_level, require_integers

__all__ = ["LayerParallel", "SerialNetwork", "Solve", "SolveStatistics"]

FORMS = ("residual", "step", "plain")
SOLVERS = ("mgrit", "pipeline")
_LAYER = re.compile(r"\blayer \d+ \(")  # the name of a layer in an error of the library
_LISTS = (Sequence, nn.Sequential, nn.ModuleList)


class LayerParallel(nn.Module):
    """A network whose layers are distributed over the ranks of ``comm``. Collective.

    Multigrid solves forward and backward. The result is exact once the solves have converged; see ``statistics``. The
    solver "pipeline" is always exact: it divides the batch into micro-batches that flow from rank to rank. The input is
    that of rank 0, which also gets the output; the other ranks get zeros that are joined to the graph. ``compose`` runs
    the layers before and after the network on rank 0.

    Args:
        layers: a sequence of modules, or a function from a layer number to its module. Every rank creates all layers in
            the same order, so that a seed gives the same weights on any number of ranks, and keeps those it needs.
        steps: the number of layers, if ``layers`` is a function.
        tf: the end time; the step size ``dt`` is ``tf`` divided by the number of layers.
        form: how a layer computes the next state, for all layers or one per layer: "residual" is ``x + dt * layer(x)``,
            "step" is ``layer(x, dt)`` and "plain" is ``layer(x)``.
        solver: "mgrit" or "pipeline". Each ignores the options of the other, so you can compare them.
        micro_batches: the number of micro-batches of the pipeline; by default four per rank, at most one per sample.
        levels: the number of multigrid levels; with 1 the layers are evaluated one after the other.
        cfactor: the coarsening factor between levels: a number, or ``{level: number}``.
        min_coarse: the smallest number of points on a coarse level.
        forward, backward: options of the two solves.
        backward_levels, backward_cfactor: by default those of the forward solve.
        replicated: all ranks have the same input, output and loss, and gradients are those of one of them.
        coarsen, refine: functions of a state and a level that transfer states between levels.
        relinearize: the coarse steps of the backward solve use the states after the last sweep of the forward solve, as
            in torchbraid. It costs an evaluation per coarse step; converged gradients do not change.
        keep_states: keep the states of the last forward for ``states``.
        control: an IterationController that compares the gradients of ``loss`` with exact ones. The network must then
            be trained through ``loss``. Exact steps use ``micro_batches``, by default 1.

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
        solver: str = "mgrit",
        micro_batches: int | None = None,
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
        relinearize: bool = False,
        keep_states: bool = False,
        control: IterationController | None = None,
    ) -> None:
        super().__init__()
        self.comm = comm
        self._options: dict[str, Any] = {
            "tf": tf,
            "solver": solver,
            "micro_batches": micro_batches,
            "levels": levels,
            "cfactor": cfactor,
            "min_coarse": min_coarse,
            "backward_levels": backward_levels,
            "backward_cfactor": backward_cfactor,
            "replicated": replicated,
            "coarsen": coarsen,
            "refine": refine,
            "relinearize": relinearize,
            "keep_states": keep_states,
            "control": control,
        }
        self._held: dict[int, HeldLayer] = {}  # the layers on this rank, by number
        self._copies: dict[int, nn.Module] = {}  # of other ranks' layers; neither trained nor saved by this rank
        self._sharing = Sharing()
        self._watch = ModuleWatch()
        self._warned: set[str] = set()
        try:
            count = count_layers(layers, steps)
            self.tf = _finite("tf", tf)
            self.total_layers = count
            self.replicated = replicated
            self._forms = forms_of(form, count)
            self._solves = _solves(forward or Solve(), backward or Solve())
            self._transfers = (coarsen, refine)
            if solver not in SOLVERS:
                raise ValueError(f"weft: expected solver to be one of {SOLVERS}, got {solver!r}")
            self.solver = solver
            self.micro_batches = (
                require_integers("micro_batches", micro_batches, 1) if micro_batches is not None else None
            )
            self.control = _control(control, replicated)
            if solver == "pipeline":
                levels, backward_levels = 1, None
            description = {
                "tf": self.tf,
                "solver": solver,
                "micro_batches": self.micro_batches or (0 if solver == "pipeline" else 1),
                "forward_grid": _grid(levels, cfactor, min_coarse),
                "backward_grid": _grid(
                    levels if backward_levels is None else backward_levels,
                    cfactor if backward_cfactor is None else backward_cfactor,
                    min_coarse,
                ),
                "forward": self._solves[0].describe(),
                "backward": self._solves[1].describe(),
                "replicated": replicated,
                "relinearize": relinearize,
                "keep_states": keep_states,
                "forms": self._forms,
            }
            self._description: dict[str, Any] = description
            begin, end, borrowed, lent, owners, self.levels, self.backward_levels = (
                _bindings.load().layer_parallel_plan(count, comm.size, comm.rank, description)
            )
            self.own = range(begin, end)
            made = self._make_layers(maker_of(layers), {*self.own, *borrowed}, owners)
        except Exception as error:  # the other ranks already wait for this one
            _bindings.load().layer_parallel_refuse(comm._id, str(error))
            raise
        self.layers = nn.ModuleDict({str(number): made[number] for number in self.own})
        self._copies = {number: made[number] for number in borrowed}
        self._register_load_state_dict_pre_hook(self._leave_out_other_layers)
        self._lent = {number: LentLayer(made[number]) for number in lent}  # other ranks have copies of these layers
        self._hold(made)
        self._network = _bindings.load().LayerParallel(
            comm._id, count, {number: self._describe(number) for number in made}, self._shared_copies(), description
        )
        self._shares_buffers = _any_rank(comm, any(layer.shared for layer in self._held.values()))
        _networks.add(self)

    # ---- evaluation

    def forward(self, x: State | None = None, *args: Any, **kwargs: Any) -> State:
        """Collective. Returns the state after the last layer.

        Args:
            x: the input: a tensor or a tuple of tensors. Rank 0 passes it; with ``replicated`` every rank does.
            args, kwargs: passed to every layer, the same on all ranks. Each rank gets the contribution of its layers to
                the gradients of these tensors.

        Raises LayerError on all ranks if a layer fails.
        """
        if self._is_controlled and self.training and torch.is_grad_enabled():
            raise RuntimeError(
                "weft: the IterationController of this LayerParallel cannot see the loss; train with "
                "net.loss(function, x, targets), and evaluate under torch.no_grad() or after net.eval()"
            )
        return self._forward(x, args, kwargs)

    def _forward(self, x: State | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> State:
        return self._run(self._network.forward, Pass(self, x, args, kwargs))

    def loss(
        self,
        function: Callable[..., Tensor],
        x: State | None = None,
        *targets: Any,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> Tensor:
        """Collective. Returns ``function(net(x), *targets)`` on rank 0 and a zero on other ranks; use it for training.

        The pipeline calls the function once per micro-batch and computes the gradients at once, in the order "one
        forward, one backward" (1F1B): each rank holds the graphs of few micro-batches. ``weft.backward`` of the result
        accumulates these gradients. Other solvers call the function once. With ``control``, the controller selects the
        solver, and the function is called twice in batches whose gradients are compared.

        Args:
            function: the layers after the network and the loss. With the pipeline, the tensors that it uses besides its
                arguments must be parameters, or need no gradients.
            x: the input, as in ``forward``.
            targets: tensors with one row per sample, on rank 0; other values are passed unchanged.
            reduction: "mean" or "sum": how the function combines its samples, and weft the micro-batches.
            kwargs: passed to every layer.

        Raises LayerError on all ranks if a layer or the function fails.
        """
        if reduction not in ("mean", "sum"):
            raise ValueError(f"weft: expected reduction to be 'mean' or 'sum', got {reduction!r}")
        call = LossCall(function, x, targets, reduction, kwargs)
        if self._is_controlled and torch.is_grad_enabled():
            return self._controlled_loss(call)
        if self.solver != "pipeline" or self.replicated:
            return self.compose(function, self(x, **kwargs), *targets)
        return self._exact_loss(call)

    def _exact_loss(self, call: LossCall) -> Tensor:
        return self._run(self._network.loss, Pass(self, call.x, (), call.kwargs, call.part()))

    def _controlled_loss(self, call: LossCall) -> Tensor:
        assert self.control is not None
        work, solves = self.control.begin_batch(self.solves)
        if solves != self.solves:
            self.solves = solves
        if work == "compare":
            return self._compared_loss(self.control, call)
        if work == "exact":
            loss = self._exact_loss(call)
            self.control.end_batch(())
        else:
            loss = self.compose(call.function, self._forward(call.x, (), call.kwargs), *call.targets)
            self.control.end_batch(self.statistics)
        return loss

    def _compared_loss(self, control: IterationController, call: LossCall) -> Tensor:
        """Computes the gradients with multigrid and with the pipeline, from the same random numbers and buffers.

        Only the pass whose gradients are used leaves traces in the buffers.
        """
        devices = list({p.device for p in self.parameters() if p.device.type != "cpu"})
        # The exact pass has a single micro-batch, so both passes call the function once, with all rows.
        part = replace(call, function=RepeatableFunction(call.function, devices), reduction="sum").part()

        def differentiate(solver: str) -> Any:
            current = Pass(self, call.x, (), call.kwargs, part)
            return self._run(lambda extras, p: self._network.loss_gradients(extras, p, solver), current)

        random, buffers = RandomState(devices), BufferValues()
        with buffers.watching():
            approximation = differentiate("mgrit")
        statistics, updated, random_after = self.statistics, buffers.present(), RandomState(devices)
        buffers.restore()
        random.restore()
        buffers = BufferValues()
        try:
            with buffers.watching():
                exact = differentiate("pipeline")
        except BaseException:
            buffers.restore()
            raise
        finally:
            random_after.restore()
        bias, cosine, norm = self._network.compare(approximation, exact)
        if control.end_comparison(bias, cosine, norm, statistics):
            return self._network.record(exact)
        buffers.restore()
        updated.restore()
        return self._network.record(approximation)

    def _run(self, run: Callable[[list[Tensor], Pass], Any], current: Pass) -> Any:
        try:
            result = run(current.extras, current)
        except RuntimeError as error:
            if isinstance(error, LayerError) or not _LAYER.search(str(error)):
                raise
            raise LayerError(str(error)) from None  # another rank's layer, reported as PeerLost
        finally:
            current.end()
            if current.assigned:
                self._hold({number: self._held[number].module for number in current.assigned})
        if self._shares_buffers and not current.plain:
            self._combine_buffers(current.updates)
        return result

    def compose(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Returns ``function(*args, **kwargs)`` on rank 0, and on other ranks a zero that joins the arguments' graphs.

        Use it for the layers before and after the network and for the loss. With ``replicated`` the function runs on
        every rank.
        """
        if self.replicated or self.comm.rank == 0:
            return function(*args, **kwargs)
        return zero_joined_to((args, kwargs))

    def side_input(self, x: Tensor) -> Tensor:
        """Collective. Returns rank 0's tensor on every rank, to be passed to the layers as an additional argument.

        The gradient of ``x`` is the sum of all ranks' contributions, as needed for the output of an encoder to which
        all layers attend. Other ranks pass anything that is joined to the graph, such as the result of ``compose``.
        With ``replicated``, all ranks pass the same tensor.
        """
        if self.comm.size == 1:
            return x
        if self.replicated:
            total = self.comm.all_reduce(x)
            return total - total.detach() + x.detach()
        layouts = _objects.all_gather(self.comm, (tuple(x.shape), x.dtype) if self.comm.rank == 0 else None)
        if self.comm.rank != 0:
            x = zero_joined_to(x) + torch.zeros(layouts[0][0], dtype=layouts[0][1], device=x.device)
        return self.comm.broadcast(x, root=0)

    @property
    def statistics(self) -> tuple[SolveStatistics, SolveStatistics]:
        """Statistics of the last forward and the last backward solve on this rank."""
        forward, backward = self._network.statistics()
        return SolveStatistics("forward", **forward), SolveStatistics("backward", **backward)

    @property
    def solves(self) -> tuple[Solve, Solve]:
        """Options of the forward and the backward solve. If you set them, set the same on all ranks."""
        return self._solves

    @solves.setter
    def solves(self, solves: tuple[Solve, Solve]) -> None:
        self._solves = _solves(*solves)
        self._network.set_solvers(solves[0].describe(), solves[1].describe())

    def states(self) -> list[tuple[int, State]]:
        """Returns (point, state) for this rank's points after forward (``keep_states``). Point k precedes layer k."""
        return self._network.states()

    def release_states(self) -> None:
        """Releases the states that ``keep_states`` keeps; the next forward would release them too."""
        self._network.release_states()

    def with_layers(self, layers: Callable[[int], nn.Module], steps: int, form: str) -> LayerParallel:
        """Collective. Returns a network of other layers with the same options and the same ``tf``."""
        forward, backward = self._solves
        return LayerParallel(
            self.comm, layers, steps=steps, form=form, forward=forward, backward=backward, **self._options
        )

    @property
    def forms(self) -> list[str]:
        """The forms of all layers."""
        return list(self._forms)

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
        return gather_state(self.comm, self)

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
        how = "solver=pipeline" if self.solver == "pipeline" else f"levels={self.levels}"
        return (
            f"layers {self.own.start}..{self.own.stop - 1} of {self.total_layers} on rank {self.comm.rank} of "
            f"{self.comm.size}, {how}, tf={self.tf}"
        )

    # ---- inner workings

    @property
    def _plain(self) -> bool:
        """Whether forward is a plain loop without a solver."""
        return self.comm.size == self.levels == self.backward_levels == 1

    @property
    def _is_controlled(self) -> bool:
        """Whether a controller has to watch the loss: only the gradients of several levels are approximate."""
        several_levels = self.levels > 1 or self.backward_levels > 1
        return self.control is not None and self.control.mode != "off" and several_levels

    @property
    def _guess(self) -> Callable[[float], State]:
        guess = self._solves[0].guess
        return guess if callable(guess) else _no_guess

    def _make_layers(
        self, make: Callable[[int], nn.Module], needed: set[int], owners: Sequence[int]
    ) -> dict[int, nn.Module]:
        """Makes all layers in order and returns the needed ones by number."""
        made: dict[int, nn.Module] = {}
        for number, owner in enumerate(owners):
            module = make(number)
            if not isinstance(module, nn.Module):
                raise TypeError(f"weft: expected layer {number} to be a torch.nn.Module, got {type(module).__name__}")
            self._sharing.add(number, owner, module, owner == self.comm.rank)
            if number in needed:
                made[number] = module
        self._sharing.finish()
        return made

    def _own_layers(self) -> dict[int, nn.Module]:
        return {int(number): layer for number, layer in self.layers.items()}

    def _hold(self, layers: Mapping[int, nn.Module]) -> None:
        """Records the present modules and tensors of these layers."""
        buffered = self._sharing.buffered({n: layer for n, layer in layers.items() if n in self.own})
        for number, module in layers.items():
            self._held[number] = HeldLayer(module, self._forms[number], buffered.get(number, []))
        self._watch.watch(layers)
        network = self.__dict__.get("_network")
        if network is not None:
            for number, module in layers.items():
                network.rebind(number, list(module.parameters()), list(module.buffers()))

    def _describe(self, number: int) -> dict[str, Any]:
        module = self._held[number].module
        return {
            "form": self._forms[number],
            "parameters": list(module.parameters()),
            "buffers": list(module.buffers()),
            "name": type(module).__name__,
        }

    def _shared_copies(self) -> dict[str, Tensor]:
        """Returns the parameters that other ranks use too, and marks them for ``clip_grad_norm_``."""
        shared = self._sharing.parameters(self._own_layers())
        for parameter, ranks in shared.values():
            parameter._weft_copies = ranks  # type: ignore[attr-defined]
        return {key: parameter for key, (parameter, _) in shared.items()}

    def _follow_changes(self) -> None:
        """Makes the library use modules, parameters and buffers that were added or replaced since the last pass."""
        current = {number: self.layers._modules.get(str(number)) for number in self.own}
        replaced = {number: layer for number, layer in current.items() if layer is not self._held[number].module}
        if not replaced and len(self.layers) == len(self.own) and self._watch.unchanged():
            return
        if len(self.layers) != len(self.own) or None in replaced.values():
            raise RuntimeError(
                f"weft: LayerParallel.layers has the keys {list(self.layers)}, but this rank needs layers "
                f"{self.own.start} to {self.own.stop - 1}; replace layers, but do not add or remove any"
            )
        changed = {number: self._held[number].module for number in self._watch.changed()}
        self._hold({**changed, **replaced})  # type: ignore[dict-item]
        for number in sorted({*changed, *replaced}):
            if self._held[number].shared and not self._shares_buffers:
                raise RuntimeError(
                    f"weft: layer {number} shares a module with other layers, and buffers were added to it; create a "
                    "new LayerParallel"
                )
        self._network.rebind_shared(self._shared_copies())

    def _replace_copy(self, number: int, module: nn.Module) -> None:
        self._copies[number] = module
        self._hold({number: module})

    def _combine_buffers(self, updates: sharing.BufferUpdates) -> None:
        """Collective. Applies the changes that the layers of all ranks made to shared buffers."""
        parts = [updates] if self.comm.size == 1 else _objects.all_gather(self.comm, updates)
        everything = {number: changes for part in parts for number, changes in part.items()}
        modules = {key: module for layer in self._held.values() for key, module in layer.shared}
        sharing.combine(everything, modules)

    def _leave_out_other_layers(self, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        others = {f"{prefix}layers.{number}." for number in range(self.total_layers) if number not in self.own}
        for key in list(state_dict):
            end = key.find(".", len(prefix) + len("layers."))
            if end > 0 and key[: end + 1] in others:
                del state_dict[key]


def _control(control: IterationController | None, replicated: bool) -> IterationController | None:
    if control is not None and not isinstance(control, IterationController):
        raise TypeError(f"weft: expected control to be an IterationController, got {type(control).__name__}")
    if control is not None and replicated:
        raise ValueError("weft: an IterationController needs replicated=False: rank 0 must compute the loss")
    return control


def gather_state(comm: Communicator, module: nn.Module) -> dict[str, Tensor]:
    """Collective. Returns the states of all ranks' parts of a module on every rank."""
    pieces = _objects.all_gather(comm, {key: value.cpu() for key, value in module.state_dict().items()})
    return {key: value for piece in pieces for key, value in piece.items()}


def zero_joined_to(arguments: Any) -> Tensor:
    """Returns a zero whose graph contains the tensors among ``arguments``, so that all ranks take part in backward."""
    zero = torch.zeros(())
    for leaf in tree_leaves(arguments):
        if isinstance(leaf, Tensor) and leaf.requires_grad:
            # A sum of no elements is zero even if the leaf contains NaN.
            zero = zero.to(leaf.device) + leaf.flatten()[:0].sum()
    return zero


def maker_of(layers: Sequence[nn.Module] | Callable[[int], nn.Module]) -> Callable[[int], nn.Module]:
    return layers.__getitem__ if isinstance(layers, _LISTS) else layers


def count_layers(layers: Sequence[nn.Module] | Callable[[int], nn.Module], steps: int | None) -> int:
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


def forms_of(form: str | Sequence[str], count: int) -> list[str]:
    forms = [form] * count if isinstance(form, str) else list(form)
    if len(forms) != count or any(name not in FORMS for name in forms):
        raise ValueError(f"weft: expected form to be one of {FORMS}, or a list of {count} of them, got {form!r}")
    return forms


def _grid(levels: int, cfactor: int | Mapping[int, int], min_coarse: int) -> dict[str, Any]:
    return {
        "levels": require_integers("levels", levels, 1),
        "cfactor": per_level(require_integers("cfactor, the coarsening factor,", cfactor, 2), 2),
        "min_coarse": require_integers("min_coarse", min_coarse, 1),
    }


def _finite(name: str, value: float) -> float:
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"weft: expected {name} to be finite, got {value}")
    return value


def _solves(forward: Solve, backward: Solve) -> tuple[Solve, Solve]:
    if callable(backward.guess):
        raise ValueError("weft: only the forward solve accepts a function as the initial guess")
    return forward, backward


def _no_guess(time: float) -> NoReturn:
    raise TypeError("weft: expected a function as the initial guess; pass it as Solve(guess=...)")


@torch.no_grad()
def _any_rank(comm: Communicator, flag: bool) -> bool:
    return bool(comm.all_reduce(torch.tensor(int(flag)), "max").item())


_networks: weakref.WeakSet[LayerParallel] = weakref.WeakSet()


def _reject_line_searches(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """LBFGS calls its closure until its own parameters converge. Each rank optimizes other layers, so the ranks would
    take different numbers of passes and wait for each other."""
    if not isinstance(optimizer, torch.optim.LBFGS):
        return
    optimized = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for network in _networks:
        if network.comm.size > 1 and any(id(parameter) in optimized for parameter in network.parameters()):
            raise RuntimeError(
                "weft: LBFGS cannot optimize a LayerParallel network on several ranks: each rank would call the "
                "closure a different number of times. Use an optimizer that evaluates the loss once per step, such "
                "as SGD or Adam, or optimize the network on one rank"
            )


register_optimizer_step_pre_hook(_reject_line_searches)
