"""Multigrid in time (MGRIT): the steps of a recurrence on several levels of coarser time grids.

A coarse step stands for several steps; ``Recurrence.step`` gets their number. The adjoint is solved by multigrid, too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _bindings
from .._tape import tape
from ..communicator import Communicator
from ..errors import NotConverged
from ..layer_parallel.solve import Solve, SolveStatistics
from .options import SolveLog, SolverOptions
from .piece import active_steps, as_rows, in_order
from .recorded import record
from .recurrence import Recurrence, State
from .step_gradients import UNUSED


class MultigridSolvers:
    """The solvers of a network. They keep the results of the last pass for ``guess="previous"``."""

    def __init__(self, comm: Communicator | None, options: SolverOptions) -> None:
        self.options = options
        self._comm = comm
        self._communicators: dict[bool, Communicator] = {}
        self._solvers: dict[Any, Any] = {}

    def get(self, slot: int, steps: Sequence[int], reverse: bool, adjoint: bool) -> Any:
        """Collective. Returns the solver for a layer and direction (``slot``) with these numbers of steps per rank.

        ``reverse``: the recurrence runs from the last step to the first. Its ranks are then in reverse order.
        """
        key = (slot, tuple(steps), adjoint)
        if key not in self._solvers:
            for old in [k for k in self._solvers if k[0] == slot and k[2] == adjoint]:
                del self._solvers[old]
            comm = None if self._comm is None else self._in_order(self._comm, reverse != adjoint)._id
            in_time = list(steps)[::-1] if reverse else list(steps)
            grid = self.options.grid(adjoint)
            self._solvers[key] = _bindings.load().SequenceMultigrid(comm, in_time, grid, adjoint)
        return self._solvers[key]

    def _in_order(self, comm: Communicator, reverse: bool) -> Communicator:
        """A solve needs a communicator of its own, with the ranks in the order of its time."""
        if not self._communicators:  # in the first forward pass
            self._communicators = {False: comm.dup(), True: comm.split(0, comm.size - 1 - comm.rank)}
        return self._communicators[reverse]

    def __reduce__(self) -> tuple[Any, ...]:
        return MultigridSolvers, (self._comm, self.options)  # copies of a network have solvers of their own


def run_mgrit(
    recurrence: Recurrence, x: Tensor, initial: State, lengths: Tensor | None, steps: Sequence[int], reverse: bool,
    comm: Communicator | None, solvers: MultigridSolvers, slot: int, wants_grad: bool, log: SolveLog,
) -> tuple[Tensor, State]:  # fmt: skip
    """Runs the recurrence over the pieces of all ranks. Collective and differentiable.

    Returns the outputs of this rank's steps, and the final state on every rank. Raises LayerError on all ranks if the
    cell fails on one, and NotConverged if a state is not finite.
    """
    solve = _MgritSolve(recurrence, x, recurrence.join(initial), lengths, steps, reverse, comm, solvers, slot, log)
    states, final = solve.forward(wants_grad)
    if wants_grad:
        inputs = [x, *initial, *recurrence.weights]
        states, final = record("mgrit", comm, inputs, [states, final], solve.adjoint)
    return recurrence.outputs(states), recurrence.split(final)


class _MgritSolve:
    """One layer and direction of a pass. Steps are in the order of the recurrence: reversed if ``reverse``."""

    def __init__(
        self, recurrence: Recurrence, x: Tensor, initial: Tensor, lengths: Tensor | None, steps: Sequence[int],
        reverse: bool, comm: Communicator | None, solvers: MultigridSolvers, slot: int, log: SolveLog,
    ) -> None:  # fmt: skip
        self.recurrence = recurrence
        self.x = in_order(x.detach(), reverse).contiguous()
        self.initial = initial.detach()
        self.active = active_steps(lengths, x.size(0), reverse)
        self.steps = list(steps)
        self.reverse = reverse
        self.comm = comm
        self.solvers = solvers
        self.slot = slot
        self.log = log
        rank = 0 if comm is None else comm.rank
        self.total = sum(steps)
        self.begin = sum(self.steps[rank + 1 :]) if reverse else sum(self.steps[:rank])
        self.before = initial.new_zeros(x.size(0), *initial.shape)
        self.weights = [weight.detach().requires_grad_() for weight in recurrence.weights]
        # Steps with their graphs, by their numbers and the count of fine steps.
        self.graphs: dict[tuple[int, int], _Graph] = {}

    # ---- forward

    @torch.no_grad()
    def forward(self, keep_graphs: bool) -> tuple[Tensor, Tensor]:
        """Returns the states of this rank's steps, with zeros after the end of a row, and the final state.

        ``keep_graphs``: keep the graphs of the final steps for the adjoint.
        """
        after = torch.zeros_like(self.before)
        if self.total == 0:
            return after, self.initial.clone()

        inputs = self._with_inputs_of_other_ranks()
        split = self._first_separate_step_of_adjoint()

        def step(states: Tensor, first: list[int], count: int, final: bool) -> Tensor:
            """A coarse step has the input of the first step that it stands for, as in torchbraid."""
            last = [number + count - 1 - self.begin for number in first]
            if final:
                self.before[last] = states
            if final and keep_graphs:
                graphs = self._graphs(last, split)
                following = _joined([graph.after.detach() for graph in graphs], _places(last, graphs))
            else:
                x = torch.cat([inputs(number) for number in first])
                with torch.no_grad(), tape(False):
                    following = self.recurrence.step(x, as_rows(states), self.recurrence.weights, float(count))
            following = following.view_as(states)
            if self.active is not None:
                following = torch.where(self.active[last], following, states)
            if final:
                after[last] = following
            return following

        self._solve("forward", self.initial, step, self.solvers.options.forward)
        last = after[-1] if len(after) else self.initial
        if self.comm is not None:
            last = self.comm.broadcast(last, root=self._last_rank())
        outputs = after if self.active is None else after.where(self.active, 0)
        return in_order(outputs, self.reverse), last.clone()

    def _with_inputs_of_other_ranks(self) -> Callable[[int], Tensor]:
        """Collective. Returns a function from the number of a step to its input.

        A coarse step that leads to this rank's first point of a level may start on another rank.
        """
        wanted: set[int] = set()
        stride = 1
        grid = self.solvers.options.grid(adjoint=False)
        everywhere, exceptions = grid["cfactor"]
        in_time = self.steps[::-1] if self.reverse else self.steps
        for level in range(grid["levels"] - 1):
            stride *= exceptions.get(level, everywhere)
            begin = 0
            for count in in_time:
                first = begin // stride * stride
                if first < begin and first + stride <= begin + count:
                    wanted.add(first)
                begin += count
        others: dict[int, Tensor] = {}
        if wanted and self.comm is not None:
            numbers = sorted(wanted)
            buffer = self.x.new_zeros(len(numbers), *self.x.shape[1:])
            for row, number in enumerate(numbers):
                if 0 <= number - self.begin < len(self.x):
                    buffer[row] = self.x[number - self.begin]
            with tape(False):
                others = dict(zip(numbers, self.comm.all_reduce(buffer, "sum"), strict=True))
        return lambda number: self.x[number - self.begin] if number >= self.begin else others[number]

    def _last_rank(self) -> int:
        """The rank with the last step in the order of the recurrence."""
        ranks = [rank for rank, count in enumerate(self.steps) if count]
        return ranks[0] if self.reverse else ranks[-1]

    def _solve(self, direction: str, initial: Tensor, step: Any, options: Solve | None) -> None:
        solver = self.solvers.get(self.slot, self.steps, self.reverse, direction == "backward")
        found = solver.solve(initial, step, (options or Solve()).describe())
        statistics = SolveStatistics(direction, **found)
        self.log.add(statistics)
        if any(not math.isfinite(residual) for residual in statistics.known):
            raise NotConverged(
                f"weft: {self.recurrence.name}: the {direction} multigrid solve did not converge: a state is NaN or "
                "infinite; check the input and the weights"
            )
        if statistics.stalled:
            warnings.warn(
                f"weft: {self.recurrence.name}: the {direction} multigrid solve did not converge in "
                f"{statistics.iterations} iterations: its last sweep changed the states by "
                f'{100 * (statistics.last_change or 0):.2g}%; raise Solve.iterations or use solver="pipeline"',
                stacklevel=2,
            )

    # ---- backward

    def adjoint(self, gradients: Sequence[Tensor]) -> Sequence[Tensor | None]:
        """Returns the gradients of x, of the tensors of the initial state and of the weights."""
        of_after = in_order(gradients[0], self.reverse)
        if self.active is not None:
            of_after = of_after.where(self.active, 0)
        of_final = gradients[1]
        if self.comm is not None:  # every rank has the final state
            with tape(False):
                of_final = self.comm.all_reduce(of_final, "sum")
        of_initial = torch.zeros_like(self.initial)
        of_x = torch.zeros_like(self.x)
        of_weights = [torch.zeros_like(weight) for weight in self.recurrence.weights]

        def step(states: Tensor, first: list[int], count: int, final: bool) -> Tensor:
            local = [number - self.begin for number in first]
            # The constant part of a coarse step cancels in the coarse-grid equation.
            vectors = states + of_after[local] if count == 1 else states
            active = None if self.active is None else self.active[local]
            seeds = vectors if active is None else vectors.where(active, 0)
            graphs = self._graphs_of(local, count)
            places = _places(local, graphs)
            wanted = [graph.before for graph in graphs]
            if final:
                wanted += [*(graph.x for graph in graphs), *self.weights]
            seeds_of = _divided(seeds, places, graphs)
            found = torch.autograd.grad(
                [graph.after for graph in graphs], wanted, seeds_of, retain_graph=not final, **UNUSED
            )
            passed = _joined(found[: len(graphs)], places).view_as(vectors)
            if active is not None:
                passed = torch.where(active, passed, vectors)
            if final:
                of_steps = _joined(found[len(graphs) : 2 * len(graphs)], places)
                of_x[local] = of_steps.view(len(local), *self.x.shape[1:])
                for total, part in zip(of_weights, found[2 * len(graphs) :], strict=True):
                    total += part
                if 0 in first:
                    of_initial.copy_(passed[first.index(0)])
            return passed

        if self.total == 0:
            if self.comm is None or self.comm.rank == 0:
                of_initial = of_final
        else:
            self._solve("backward", of_final.contiguous(), step, self.solvers.options.backward)
        self.graphs.clear()
        return [in_order(of_x, self.reverse), *self.recurrence.split(of_initial), *of_weights]

    def _first_separate_step_of_adjoint(self) -> int:
        """Returns the first of this rank's last steps whose gradients arrive from another rank.

        The adjoint takes the other steps together; graphs that contain steps of one kind only can be used again.
        """
        end = self.begin + len(self.x)
        if end == self.total:
            return len(self.x)
        everywhere, exceptions = self.solvers.options.grid(adjoint=True)["cfactor"]
        factor = exceptions.get(0, everywhere)
        intervals = (self.total - end) // factor + 1
        return self.total - intervals * factor - self.begin

    def _graphs(self, local: list[int], split: int) -> list[_Graph]:
        """Takes fine steps and keeps their graphs: one for the steps before ``split``, one for the others."""
        parts = [[step for step in local if step < split], [step for step in local if step >= split]]
        return [self._evaluate(part, 1) for part in parts if part]

    def _graphs_of(self, local: list[int], count: int) -> list[_Graph]:
        """Returns graphs of exactly these steps, at the states of the forward solve."""
        known = {id(graph): graph for step in local if (graph := self.graphs.get((step, count)))}
        graphs = list(known.values())
        if sorted(step for graph in graphs for step in graph.steps) == sorted(local):
            return graphs
        return [self._evaluate(local, count)]

    def _evaluate(self, local: list[int], count: int) -> _Graph:
        with torch.enable_grad(), tape(False):
            x = as_rows(self.x[local]).requires_grad_()
            before = as_rows(self.before[local]).requires_grad_()
            after = self.recurrence.step(x, before, self.weights, float(count))
        graph = _Graph(local, x, before, after)
        self.graphs.update({(step, count): graph for step in local})
        return graph


class _Graph(NamedTuple):
    """Steps with the graph of their computation."""

    steps: list[int]
    x: Tensor
    before: Tensor
    after: Tensor


def _places(steps: list[int], graphs: list[_Graph]) -> list[int]:
    """Returns the places of the steps in the concatenation of the graphs."""
    place = {step: place for place, step in enumerate(step for graph in graphs for step in graph.steps)}
    return [place[step] for step in steps]


def _divided(states: Tensor, places: list[int], graphs: list[_Graph]) -> list[Tensor]:
    """Returns the rows of each graph for states [steps, batch, ...] of the steps with these places."""
    if places != sorted(places):
        rows = torch.empty_like(states)
        rows[places] = states
        states = rows
    return [as_rows(part) for part in states.split([len(graph.steps) for graph in graphs])]


def _joined(rows: Sequence[Tensor], places: list[int]) -> Tensor:
    """The inverse of ``_divided``: returns the rows of the steps with these places."""
    joined = rows[0] if len(rows) == 1 else torch.cat(list(rows))
    if places == sorted(places):
        return joined
    return as_rows(joined.unflatten(0, (len(places), -1))[places])
