"""Newton's method over time: linearises all steps at once and solves the linear recurrence by a scan over the ranks.

With a diagonal Jacobian this is quasi-DEER, with a full one DEER. If an iterate is much worse than the one before, the
Jacobian is scaled down, as in ELK. The adjoint is a linear recurrence with the exact Jacobian, solved by the same scan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._tape import tape
from ..communicator import Communicator
from ..errors import NotConverged
from .chain import run_chain
from .failure import raise_shared
from .options import SolveLog, SolverOptions, newton_statistics
from .piece import Piece, active_steps, in_order
from .prefix import RankMaps, multiply
from .recorded import record
from .recurrence import Recurrence, State
from .step_gradients import UNUSED, StepGradients
from .sweep import Sweep, largest_element

GROWTH = 100.0
"""An iterate whose residual exceeds that of the last one by this factor is rejected."""
SMALLEST_SCALE = 1 / 16
"""Below this factor of the Jacobian, the method ignores it and becomes a fixed-point iteration."""


def run_newton(
    recurrence: Recurrence, x: Tensor, initial: State, lengths: Tensor | None, reverse: bool,
    comm: Communicator | None, options: SolverOptions, wants_grad: bool, log: SolveLog,
) -> tuple[Tensor, State]:  # fmt: skip
    """Runs the recurrence over the pieces of all ranks. Collective and differentiable.

    Args:
        wants_grad: whether any rank needs gradients.

    Returns the outputs of this rank's steps, and the final state on every rank. Raises NotConverged.
    """
    solve = _NewtonSolve(recurrence, x, recurrence.join(initial), lengths, reverse, comm, options, log)
    try:
        outputs, final = solve.forward()
    except NotConverged:
        if options.on_divergence == "raise":
            raise
        return run_chain(recurrence, x, initial, lengths, reverse, comm)
    if wants_grad:
        inputs = [x, *initial, *recurrence.weights]
        outputs, final = record("newton", comm, inputs, [outputs, final], solve.adjoint)
    return outputs, recurrence.split(final)


class _NewtonSolve:
    """One layer and direction of a pass. Steps are in the order of the recurrence: reversed if ``reverse``."""

    def __init__(
        self, recurrence: Recurrence, x: Tensor, initial: Tensor, lengths: Tensor | None, reverse: bool,
        comm: Communicator | None, options: SolverOptions, log: SolveLog,
    ) -> None:  # fmt: skip
        self.recurrence = recurrence
        self.given = x.detach()
        in_time = in_order(self.given, reverse).contiguous()
        self.piece = Piece(in_time, lengths, reverse, active_steps(lengths, x.size(0), reverse))
        self.initial = initial.detach()
        self.comm = comm if comm is not None and comm.size > 1 else None
        self.options = options
        self.log = log
        self.full = options.jacobian == "full"
        # The state before the first step and after each step: the last iterate at which steps were linearised.
        self.states = initial.new_zeros(x.size(0) + 1, *initial.shape)
        self.jacobian: Tensor | None = None  # at these states

    # ---- forward

    @torch.no_grad()
    def forward(self) -> tuple[Tensor, Tensor]:
        """Returns the outputs of this rank's steps, with zeros after the end of a row, and the final state."""
        tolerance = self.options.tolerance_for(self.given.dtype)
        self.states[0] = self.initial
        scale = 1.0
        residuals: list[float] = []
        evaluations = 0
        previous: tuple[Tensor, float] | None = None  # the last accepted iterate and its residual
        while True:
            sweep, norm, start, final = self._sweep(scale)
            evaluations += len(self.given)
            residuals.append(norm)
            if norm <= tolerance:
                break
            if len(residuals) > self.options.max_iterations or (previous is None and not math.isfinite(norm)):
                self.log.add(newton_statistics("forward", residuals, False, evaluations))
                self._give_up(residuals)
            if previous is not None and not norm <= GROWTH * previous[1] and scale > 0:
                self.states = previous[0]
                previous = None
                scale = scale / 2 if scale > SMALLEST_SCALE else 0.0
                continue
            previous = (self.states, norm)
            self.states = sweep.solve(start)
            scale = min(1.0, 2 * scale) if scale > 0 else 0.0
        self.log.add(newton_statistics("forward", residuals, True, evaluations))
        self.jacobian = sweep.jacobian if scale == 1 else None
        # The iterate after the converged one costs nothing more.
        states = sweep.solve(start)
        outputs = self.recurrence.outputs(states[1:])
        if self.piece.active is not None:
            outputs = outputs.where(self.piece.active, 0)
        return in_order(outputs, self.piece.reverse).detach(), (states[-1] if final is None else final).clone()

    def _sweep(self, scale: float) -> tuple[Sweep, float, Tensor | None, Tensor | None]:
        """Collective. Linearises all steps at the current states, with one exchange of messages.

        Returns the sweep, the largest residual of all ranks, the change of the state before this piece, and the final
        state. The last two are None on a single rank, and the change is None on the first one.
        """
        sweep: Any = None
        error: Exception | None = None
        try:
            sweep = self.recurrence.sweep(self.piece, self.states, self.full, scale, self.comm is not None)
        except Exception as failure:
            if self.comm is None:
                raise_shared(None, self.recurrence.name, failure)
            error = failure
        if self.comm is None:
            return sweep, sweep.largest, None, None
        first, last = self.states[0], self.states[-1]
        if error is None:
            product, change = sweep.summary()
            offset = last + change - multiply(product, first)
        else:
            blocks = self.recurrence.blocks(self.full)
            product = first.new_zeros(len(first), blocks, blocks, first.size(1) // blocks)
            offset = torch.zeros_like(first)
        flags = first.new_tensor([error is not None, 0.0 if error else sweep.largest])
        maps = RankMaps(self.comm, product, offset, flags, self.piece.reverse)
        failed, norm = maps.extras.amax(0).tolist()
        if failed:
            raise_shared(self.comm, self.recurrence.name, error)
        before, final = maps.apply(self.initial)
        return sweep, norm, None if before is self.initial else before - first, final

    def _largest(self, *groups: Sequence[Tensor]) -> list[float]:
        """Collective. Returns the largest element of each group of tensors on all ranks; infinity for NaN."""
        norms = [max(largest_element(tensor) for tensor in group) for group in groups]
        if self.comm is None:
            return norms
        return self.comm.all_reduce(torch.tensor(norms, dtype=torch.float64), "max").tolist()

    def _give_up(self, residuals: list[float]) -> None:
        broken = torch.tensor(0.0 if self.given.isfinite().all() else 1.0)
        if self.comm is not None:
            broken = self.comm.all_reduce(broken, "max")
        if broken:
            cause = "the input contains NaN or infinity"
        else:
            cause = (
                f"the residual is {residuals[-1]:.3g} after {len(residuals) - 1} iterations (tolerance "
                f'{self.options.tolerance_for(self.given.dtype):.3g}); raise max_iterations, use jacobian="full" or '
                'solver="pipeline", or set on_divergence="serial"'
            )
        raise NotConverged(f"weft: {self.recurrence.name}: Newton's method did not converge: {cause}")

    # ---- backward

    def adjoint(self, gradients: Sequence[Tensor]) -> Sequence[Tensor | None]:
        """Returns the gradients of x, of the tensors of the initial state and of the weights."""
        try:
            grad_x, grad_initial, grad_weights = (
                self._adjoint_exact(*gradients) if self.recurrence.exact else self._adjoint_solve(*gradients)
            )
        except NotConverged:
            if self.options.on_divergence == "raise":
                raise
            grad_x, grad_initial, grad_weights = self._adjoint_chain(*gradients)
        first = self.comm is None or self.comm.rank == (self.comm.size - 1 if self.piece.reverse else 0)
        if not first:
            grad_initial = torch.zeros_like(grad_initial)
        return [grad_x, *self.recurrence.split(grad_initial), *grad_weights]

    def _of_states(self, of_outputs: Tensor) -> Tensor:
        """Returns the gradients of the states after each step for those of the outputs. The result is contiguous."""
        of_outputs = in_order(of_outputs, self.piece.reverse)
        of_states = of_outputs
        if len(self.recurrence.widths) > 1:
            of_states = self.states.new_zeros(self.states[1:].shape)
            self.recurrence.outputs(of_states).copy_(of_outputs)
        active = self.piece.active
        return (of_states if active is None else of_states.where(active, 0)).contiguous()

    def _adjoint_exact(self, of_outputs: Tensor, of_final: Tensor) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
        """The adjoint recurrence of this piece, with the gradient that arrives from the pieces after it."""
        arriving = of_final
        if self.comm is not None:
            of_states = self._of_states(of_outputs)
            product, end = torch.ops.weft.linear_scan_summary(self._jacobian(), of_states, True)
            maps = RankMaps(self.comm, product, end, of_final, not self.piece.reverse)
            arriving, _ = maps.apply(maps.extras.sum(0))  # every rank has the final state
        found = self.recurrence.adjoint(self.piece, self.states, of_outputs, arriving)
        self.log.add(newton_statistics("backward", [None, None], True, len(self.given)))
        return found

    def _adjoint_solve(self, of_outputs: Tensor, of_final: Tensor) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
        piece = self.piece
        grad_after = self._of_states(of_outputs)
        grad_last = self._of_last(of_final)
        steps = StepGradients(self.recurrence, piece.x, self.states[:-1], piece.active)
        # The gradients of the states after each step, and the gradients that each step passes to the state before it.
        # The last element is the gradient that reaches the end of the piece.
        of_states = torch.zeros_like(grad_after)
        passed = grad_after.new_zeros(grad_after.size(0) + 1, *grad_last.shape)
        predicted = passed[0]
        (largest,) = self._largest([grad_after, grad_last])
        # Sums over many steps are large compared with the gradients of the outputs, and so are their rounding errors.
        tolerance = max(self.options.tolerance_for(self.given.dtype), 16 * torch.finfo(self.given.dtype).eps)
        residuals: list[float] = []
        while True:
            residual = grad_after + passed[1:] - of_states
            # The piece before this one used a prediction of passed[0].
            norm, size = self._largest([residual, passed[0] - predicted], [of_states])
            largest = max(largest, size)
            residuals.append(norm / (largest or 1.0))
            if largest == 0 or (len(residuals) > 1 and residuals[-1] <= tolerance):
                break
            if len(residuals) > self.options.max_iterations or not math.isfinite(residuals[-1]):
                self.log.add(newton_statistics("backward", residuals, False, len(grad_after) * len(residuals)))
                raise NotConverged(
                    f"weft: {self.recurrence.name}: the adjoint of Newton's method did not converge: the residual is "
                    f'{residuals[-1]:.3g} after {len(residuals) - 1} iterations; use jacobian="full" or '
                    'solver="pipeline", or set on_divergence="serial"'
                )
            arriving, predicted = self._correct_adjoint(residual, passed, grad_last)
            of_states = of_states + residual
            passed[-1] = arriving
            passed[:-1] = steps.of_states_before(of_states, with_inputs=self.full)
        self.log.add(newton_statistics("backward", residuals, True, len(grad_after) * len(residuals)))
        grad_x, grad_weights = steps.of_inputs(of_states)
        return in_order(grad_x, piece.reverse), passed[0].clone(), grad_weights

    def _of_last(self, of_final: Tensor) -> Tensor:
        """Collective. Returns the gradient of the state after this piece by the final state, which every rank has."""
        if self.comm is None:
            return of_final
        with tape(False):
            total = self.comm.all_reduce(of_final, "sum")
        last = self.comm.rank == (0 if self.piece.reverse else self.comm.size - 1)
        return total if last else torch.zeros_like(total)

    def _correct_adjoint(self, residual: Tensor, passed: Tensor, grad_last: Tensor) -> tuple[Tensor, Tensor]:
        """Replaces ``residual`` by the solution of the adjoint recurrence.

        Returns the gradient that arrives at the end of the piece, and the one that the piece before this one expects.
        """
        jacobian = self._jacobian()
        if self.comm is None:
            end = torch.ops.weft.linear_scan_(jacobian, residual, grad_last - passed[-1], True)
            return grad_last, passed[0] + end
        product, end = torch.ops.weft.linear_scan_summary(jacobian, residual, True)
        offset = passed[0] + end + multiply(product, grad_last - passed[-1])
        maps = RankMaps(self.comm, product, offset, grad_last.new_zeros(0), not self.piece.reverse)
        incoming, _ = maps.apply(torch.zeros_like(grad_last))
        arriving = incoming + grad_last
        torch.ops.weft.linear_scan_(jacobian, residual, arriving - passed[-1], True)
        return arriving, multiply(product, incoming) + offset

    def _jacobian(self) -> Tensor:
        """Returns the Jacobians at the last iterate; the last sweep has none that are of use if it was damped."""
        if self.jacobian is None:
            self.jacobian = self.recurrence.sweep(self.piece, self.states, self.full, 1.0, True).jacobian
        assert self.jacobian is not None
        return self.jacobian

    def _adjoint_chain(self, of_outputs: Tensor, of_final: Tensor) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
        """The exact gradients of this piece's serial recurrence, one rank after the other."""
        recurrence, comm = self.recurrence, self.comm
        step = -1 if self.piece.reverse else 1
        grad_last = self._of_last(of_final)
        with torch.enable_grad(), tape(False):
            leaves = [tensor.detach().requires_grad_() for tensor in (self.given, self.states[0])]
            weights = [weight.detach().requires_grad_() for weight in recurrence.weights]
            y, state = recurrence.with_weights(weights).run(
                leaves[0], recurrence.split(leaves[1]), self.piece.lengths, self.piece.reverse
            )
            last = recurrence.join(state)
        if comm is not None and 0 <= comm.rank + step < comm.size:
            grad_last = grad_last + comm.recv(like=grad_last, source=comm.rank + step)
        found = torch.autograd.grad([y, last], [*leaves, *weights], [of_outputs, grad_last], **UNUSED)
        if comm is not None and 0 <= comm.rank - step < comm.size:
            comm.isend(found[1], dest=comm.rank - step).wait()
        return found[0], found[1], found[2:]
