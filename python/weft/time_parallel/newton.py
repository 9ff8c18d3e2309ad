"""Newton's method over time: linearises all steps at once and solves the linear recurrence by a scan over the ranks.

With a diagonal Jacobian this is quasi-DEER, with a full one DEER. If an iterate is much worse than the one before, the
Jacobian is scaled down, as in ELK. The adjoint is a linear recurrence with the exact Jacobian, solved by the same scan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .._tape import tape
from ..communicator import Communicator
from ..errors import NotConverged
from .chain import run_chain
from .failure import raise_shared
from .options import SolveLog, SolverOptions, newton_statistics
from .prefix import AffineMap, multiply, value_before
from .recorded import record
from .recurrence import Recurrence, State
from .step_gradients import UNUSED, StepGradients, active_steps, as_rows, in_order

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
        states, last = solve.forward()
    except NotConverged:
        if options.on_divergence == "raise":
            raise
        return run_chain(recurrence, x, initial, lengths, reverse, comm)
    if wants_grad:
        inputs = [x, *initial, *recurrence.weights]
        states, last = record("newton", comm, inputs, [states, last], solve.adjoint)
    if comm is not None and comm.size > 1:
        last = comm.broadcast(last, root=0 if reverse else comm.size - 1)
    return recurrence.outputs(states), recurrence.split(last)


class _NewtonSolve:
    """One layer and direction of a pass. Steps are in the order of the recurrence: reversed if ``reverse``."""

    def __init__(
        self, recurrence: Recurrence, x: Tensor, initial: Tensor, lengths: Tensor | None, reverse: bool,
        comm: Communicator | None, options: SolverOptions, log: SolveLog,
    ) -> None:  # fmt: skip
        self.recurrence = recurrence
        self.given = x.detach()
        self.x = in_order(self.given, reverse).contiguous()
        self.initial = initial.detach()
        self.lengths = lengths
        self.reverse = reverse
        self.comm = comm if comm is not None and comm.size > 1 else None
        self.options = options
        self.log = log
        self.full = options.jacobian == "full"
        self.active = active_steps(lengths, x.size(0), reverse)
        # The state before the first step and after each step.
        self.states = initial.new_zeros(x.size(0) + 1, *initial.shape)
        self.jacobian = initial.new_zeros(0)

    # ---- forward

    @torch.no_grad()
    def forward(self) -> tuple[Tensor, Tensor]:
        """Returns the states of this rank's steps, with zeros after the end of a row, and the state after the piece."""
        tolerance = self.options.tolerance_for(self.x.dtype)
        self.states[0] = self.initial
        scale = 1.0
        residuals: list[float] = []
        evaluations = 0
        previous: tuple[Tensor, float] | None = None  # the last accepted iterate and its residual
        while True:
            norm, residual = self._linearize()
            evaluations += self.x.size(0)
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
            self._correct(residual, scale)
            scale = min(1.0, 2 * scale) if scale > 0 else 0.0
        self.log.add(newton_statistics("forward", residuals, True, evaluations))
        after = self.states[1:] + residual
        last = after[-1] if len(after) else self.states[0]
        if self.active is not None:
            after = after.where(self.active, 0)
        return in_order(after, self.reverse), last.clone()

    def _linearize(self) -> tuple[float, Tensor]:
        """Evaluates all steps at the current states. Returns the largest residual of all ranks, and this rank's."""
        before, after = self.states[:-1], self.states[1:]
        steps, batch = before.shape[:2]
        error: Exception | None = None
        residual = after
        try:
            following, jacobian = self.recurrence.linearize(as_rows(self.x), as_rows(before), self.full)
            residual = following.view_as(after)
            self.jacobian = jacobian.view(steps, batch, *jacobian.shape[1:])
            if self.active is not None:
                residual = torch.where(self.active, residual, before)
                blocks = jacobian.size(1)
                identity = torch.eye(blocks, dtype=jacobian.dtype).unsqueeze(2)
                self.jacobian = torch.where(self.active[..., None, None], self.jacobian, identity).contiguous()
            residual = residual - after
        except Exception as failure:
            error = failure
        return self._largest([residual], error=error)[0], residual

    def _correct(self, residual: Tensor, scale: float) -> None:
        """Replaces the states by the solution of the linearised recurrence. Overwrites ``residual``."""
        jacobian = self.jacobian if scale == 1 else self.jacobian * scale
        states = self.states.clone()
        start = None
        if self.comm is not None:
            with tape(False):
                product, end = torch.ops.weft.linear_scan_summary(jacobian, residual, False)
                offset = states[-1] + end - multiply(product, states[0])
                states[0] = value_before(self.comm, AffineMap(product, offset), self.initial, self.reverse)
            start = states[0] - self.states[0]
        torch.ops.weft.linear_scan_(jacobian, residual, start, False)
        states[1:] += residual
        self.states = states

    def _largest(self, *groups: Sequence[Tensor], error: Exception | None = None) -> list[float]:
        """Collective. Returns the largest element of each group of tensors on all ranks; infinity for NaN.

        Raises LayerError on all ranks if one of them has an error.
        """
        norms = [0.0 if error else max(_largest_element(tensor) for tensor in group) for group in groups]
        flags = torch.tensor([*norms, error is not None], dtype=torch.float64)
        if self.comm is not None:
            flags = self.comm.all_reduce(flags, "max")
        if flags[-1]:
            raise_shared(self.comm, self.recurrence.name, error)
        return flags[:-1].tolist()

    def _give_up(self, residuals: list[float]) -> None:
        broken = torch.tensor(0.0 if self.x.isfinite().all() else 1.0)
        if self.comm is not None:
            broken = self.comm.all_reduce(broken, "max")
        if broken:
            cause = "the input contains NaN or infinity"
        else:
            cause = (
                f"the residual is {residuals[-1]:.3g} after {len(residuals) - 1} iterations (tolerance "
                f'{self.options.tolerance_for(self.x.dtype):.3g}); raise max_iterations, use jacobian="full" or '
                'solver="pipeline", or set on_divergence="serial"'
            )
        raise NotConverged(f"weft: {self.recurrence.name}: Newton's method did not converge: {cause}")

    # ---- backward

    def adjoint(self, gradients: Sequence[Tensor]) -> Sequence[Tensor | None]:
        """Returns the gradients of x, of the tensors of the initial state and of the weights."""
        grad_after = in_order(gradients[0], self.reverse)
        if self.active is not None:
            grad_after = grad_after.where(self.active, 0)
        try:
            grad_x, grad_initial, grad_weights = self._adjoint_solve(grad_after, gradients[1])
        except NotConverged:
            if self.options.on_divergence == "raise":
                raise
            grad_x, grad_initial, grad_weights = self._adjoint_chain(gradients[0], gradients[1])
        first = self.comm is None or self.comm.rank == (self.comm.size - 1 if self.reverse else 0)
        if not first:
            grad_initial = torch.zeros_like(grad_initial)
        return [grad_x, *self.recurrence.split(grad_initial), *grad_weights]

    def _adjoint_solve(self, grad_after: Tensor, grad_last: Tensor) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
        steps = StepGradients(self.recurrence, self.x, self.states[:-1], self.active)
        exact = self.full or self.recurrence.exact  # the first product is usually the last
        # The gradients of the states after each step, and the gradients that each step passes to the state before it.
        # The last element is the gradient that reaches the end of the piece.
        of_states = torch.zeros_like(grad_after)
        passed = grad_after.new_zeros(grad_after.size(0) + 1, *grad_last.shape)
        predicted = passed[0]
        (largest,) = self._largest([grad_after, grad_last])
        # Sums over many steps are large compared with the gradients of the outputs, and so are their rounding errors.
        tolerance = max(self.options.tolerance_for(self.x.dtype), 16 * torch.finfo(self.x.dtype).eps)
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
            passed[:-1] = steps.of_states_before(of_states, with_inputs=exact)
        self.log.add(newton_statistics("backward", residuals, True, len(grad_after) * len(residuals)))
        grad_x, grad_weights = steps.of_inputs(of_states)
        return in_order(grad_x, self.reverse), passed[0].clone(), grad_weights

    def _correct_adjoint(self, residual: Tensor, passed: Tensor, grad_last: Tensor) -> tuple[Tensor, Tensor]:
        """Replaces ``residual`` by the solution of the adjoint recurrence.

        Returns the gradient that arrives at the end of the piece, and the one that the piece before this one expects.
        """
        if self.comm is None:
            start = grad_last - passed[-1]
            end = torch.ops.weft.linear_scan_(self.jacobian, residual, start, True)
            return grad_last, passed[0] + end
        with tape(False):
            product, end = torch.ops.weft.linear_scan_summary(self.jacobian, residual, True)
            offset = passed[0] + end + multiply(product, grad_last - passed[-1])
            mine = AffineMap(product, offset)
            incoming = value_before(self.comm, mine, torch.zeros_like(grad_last), not self.reverse)
        arriving = incoming + grad_last
        torch.ops.weft.linear_scan_(self.jacobian, residual, arriving - passed[-1], True)
        return arriving, mine(incoming)

    def _adjoint_chain(self, grad_outputs: Tensor, grad_last: Tensor) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
        """The exact gradients of this piece's serial recurrence, one rank after the other."""
        recurrence, comm = self.recurrence, self.comm
        step = -1 if self.reverse else 1
        with torch.enable_grad(), tape(False):
            leaves = [tensor.detach().requires_grad_() for tensor in (self.given, self.states[0])]
            weights = [weight.detach().requires_grad_() for weight in recurrence.weights]
            y, state = recurrence.with_weights(weights).run(
                leaves[0], recurrence.split(leaves[1]), self.lengths, self.reverse
            )
            last = recurrence.join(state)
        if comm is not None and 0 <= comm.rank + step < comm.size:
            grad_last = grad_last + comm.recv(like=grad_last, source=comm.rank + step)
        found = torch.autograd.grad(
            [y, last], [*leaves, *weights], [recurrence.outputs(grad_outputs), grad_last], **UNUSED
        )
        if comm is not None and 0 <= comm.rank - step < comm.size:
            comm.isend(found[1], dest=comm.rank - step).wait()
        return found[0], found[1], found[2:]


def _largest_element(x: Tensor) -> float:
    """Returns the largest absolute value; infinity if there is a NaN."""
    if x.numel() == 0:
        return 0.0
    low, high = (bound.item() for bound in torch.aminmax(x))
    return math.inf if math.isnan(low) else max(high, -low)
