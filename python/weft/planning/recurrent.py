"""Predictions for recurrent networks whose sequence is split over the ranks: serial, pipeline and Newton's method."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from weft import _bindings
from weft._tape import reset_tape
from weft.communicator import Communicator
from weft.errors import NotConverged
from weft.layer_parallel import Solve
from weft.time_parallel.options import SolverOptions
from weft.time_parallel.solver import SequenceSolver

from .layer_costs import LayerCost, NetworkCost
from .machine import Machine
from .plan import PlanError, Prediction
from .timing import clock

MOST_CHUNKS = 256
Tasks = list[dict[str, Any]]


@dataclass(frozen=True)
class PassTimes:
    """Seconds of a pass in one process."""

    forward: float
    backward: float


def plan_recurrent(
    network: Any,
    x: Tensor,
    loss: Callable[[Any], Tensor],
    machine: Machine,
    ranks: Sequence[int],
    repeats: int,
) -> tuple[list[Prediction], list[str]]:
    """Returns the predictions for each number of ranks, and notes. Raises PlanError."""
    if not isinstance(x, Tensor) or x.dim() != 3:
        raise PlanError("weft: plan: expected the input of a recurrent network to be steps x batch x features")
    along = steps_dim(network)
    steps, rows = x.shape[along], x.shape[1 - along]
    exact = with_solver(network, "serial")
    try:
        chains = {}
        chunks = 1
        while chunks <= min(rows, MOST_CHUNKS):
            part = x.narrow(1 - along, 0, max(rows // chunks, 1)).contiguous()
            chains[chunks] = _measure(exact, part, loss, repeats)
            chunks *= 2
        reference = _gradients(exact, x, loss)
    except Exception as error:
        raise PlanError(f"weft: plan: the network failed with the input {tuple(x.shape)}: {error}") from error
    notes: list[str] = []
    newton = _measure_solver("newton", network, x, loss, reference, repeats, notes)
    mgrit = _measure_solver("mgrit", network, x, loss, reference, repeats, notes)
    weights = sum(p.nbytes for p in network.parameters())
    states = _state_bytes(exact, x, rows)
    per_step = states + x.nbytes // max(steps, 1)
    whole = chains[1].forward + chains[1].backward
    predictions = [Prediction(1, "serial", "", whole, 2 * weights + 4 * steps * per_step, 0.0)]
    for count in ranks:
        own = math.ceil(steps / count)
        memory = 2 * weights + 4 * own * per_step
        if count > 1:  # one rank has no pipeline
            predictions.append(_predict_pipeline(chains, count, states, weights, memory, machine))
        if mgrit is not None:
            times, iterations, bias = mgrit
            seconds = _replay_mgrit(network, times, iterations, steps, count, states, machine)
            name = f"{iterations[0]}+{iterations[1]} iterations"
            predictions.append(Prediction(count, "mgrit", name, seconds, memory + own * per_step, bias))
        if newton is not None:
            times, iterations, bias = newton
            seconds = _replay_newton(times, iterations, count, states, weights, machine)
            name = f"{iterations[0]}+{iterations[1]} iterations"
            predictions.append(Prediction(count, "newton", name, seconds, memory + own * per_step, bias))
    return predictions, notes


# ---- measurements in this process


def with_solver(network: nn.Module, solver: str, comm: Communicator | None = None, **options: Any) -> Any:
    """Returns a copy of the network with another communicator, by default one process, another solver and options."""
    changed = copy.deepcopy(network)
    options = {**vars(changed._solver.options), "solver": solver, **options}  # type: ignore[union-attr]
    changed._solver = SequenceSolver(comm, SolverOptions(**options))  # type: ignore[assignment]
    changed.comm = comm  # type: ignore[assignment]
    return changed


def steps_dim(network: Any) -> int:
    """Returns the dimension of the input that holds the steps."""
    return 1 if getattr(network, "batch_first", False) else 0


def _outputs(network: Any, x: Tensor) -> Any:
    y, *_ = network(x)
    return y


def _measure(network: Any, x: Tensor, loss: Callable[[Any], Tensor], repeats: int) -> PassTimes:
    best = PassTimes(math.inf, math.inf)
    for _ in range(repeats + 1):
        start = clock()
        value = loss(_outputs(network, x))
        middle = clock()
        value.backward()
        times = PassTimes(middle - start, clock() - middle)
        if times.forward + times.backward < best.forward + best.backward:
            best = times
        for parameter in network.parameters():
            parameter.grad = None
    return best


def _gradients(network: Any, x: Tensor, loss: Callable[[Any], Tensor]) -> Tensor:
    loss(_outputs(network, x)).backward()
    found = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
    for parameter in network.parameters():
        parameter.grad = None
    return found


def _measure_solver(
    solver: str,
    network: Any,
    x: Tensor,
    loss: Callable[[Any], Tensor],
    reference: Tensor,
    repeats: int,
    notes: list[str],
) -> tuple[PassTimes, tuple[int, int], float] | None:
    try:
        changed = with_solver(network, solver)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*did not converge.*")
            error = _gradients(changed, x, loss) - reference
            times = _measure(changed, x, loss, repeats)
    except (NotConverged, ValueError, NotImplementedError, RuntimeError) as failure:
        reset_tape()
        notes.append(f"{solver} is not available: {failure}")
        return None
    forward, backward = changed.statistics
    iterations = (max(forward.iterations, 1), max(backward.iterations, 1))
    return times, iterations, float(error.norm() / reference.norm())


def _state_bytes(network: Any, x: Tensor, rows: int) -> int:
    """Returns the bytes of the state of all rows at one step."""
    hidden = getattr(network, "hidden_size", None) or x.shape[-1]
    return rows * hidden * getattr(network, "num_layers", 1) * x.element_size()


# ---- predictions


def _compute(seconds: float) -> dict[str, Any]:
    return {"kind": "compute", "seconds": seconds}


def _synchronize(bytes: int) -> Tasks:
    return [{"kind": "join", "bytes": bytes}, {"kind": "wait"}]


def pipeline_tasks(times: PassTimes, ranks: int, chunks: int, state_bytes: int, weight_bytes: int) -> list[Tasks]:
    """Returns the tasks of each rank: the chunks in order, then their gradients in reverse order, then the sum of the
    weights' gradients. ``times``: those of a chunk with the whole sequence."""
    graph = []
    for rank in range(ranks):
        tasks: Tasks = []
        for seconds, source, dest in (
            (times.forward, rank - 1, rank + 1),
            (times.backward, rank + 1, rank - 1),
        ):
            for _ in range(chunks):
                if 0 <= source < ranks:
                    tasks.append({"kind": "receive", "peer": source})
                tasks.append(_compute(seconds / ranks))
                if 0 <= dest < ranks:
                    tasks.append({"kind": "send", "peer": dest, "bytes": state_bytes})
        graph.append([*tasks, *_synchronize(weight_bytes)])
    return graph


def newton_tasks(
    times: PassTimes, iterations: tuple[int, int], ranks: int, state_bytes: int, weight_bytes: int
) -> list[Tasks]:
    """Returns the tasks of each rank. An iteration evaluates all steps and exchanges the linear maps of the ranks,
    whose diagonal Jacobian and offset have the size of a state, and a norm."""
    rounds = max((ranks - 1).bit_length(), 1)
    exchanged = 2 * state_bytes * max(ranks - 1, 1) // rounds
    tasks: Tasks = []
    for seconds, count in zip((times.forward, times.backward), iterations, strict=True):
        for _ in range(count + 1):  # the last evaluation finds that the solve has converged
            tasks += [_compute(seconds / (count + 1) / ranks), *_synchronize(exchanged)]
    return [[*tasks, *_synchronize(weight_bytes)] for _ in range(ranks)]


def _predict_pipeline(
    chains: dict[int, PassTimes], ranks: int, states: int, weights: int, memory: int, machine: Machine
) -> Prediction:
    found = {}
    for chunks, times in chains.items():
        graph = pipeline_tasks(times, ranks, chunks, states // chunks, weights)
        found[chunks] = _bindings.load().plan_replay(graph, machine.describe())["seconds"]
    best = min(found, key=lambda chunks: found[chunks])
    setting = "1 chunk" if best == 1 else f"{best} chunks"
    return Prediction(ranks, "pipeline", setting, found[best], memory, 0.0, {"chunks": best})


def _replay_mgrit(
    network: Any,
    times: PassTimes,
    iterations: tuple[int, int],
    steps: int,
    ranks: int,
    states: int,
    machine: Machine,
) -> float:
    options = network._solver.options
    solves = [
        replace(solve or Solve(), iterations=count)
        for solve, count in zip((options.forward, options.backward), iterations, strict=True)
    ]
    description = {
        "tf": 1.0,
        "solver": "mgrit",
        "micro_batches": 1,
        "forward_grid": options.grid(False),
        "backward_grid": options.grid(True),
        "forward": solves[0].describe(),
        "backward": solves[1].describe(),
        "replicated": False,
        "relinearize": False,
        "keep_states": False,
        "forms": ["plain"] * steps,
    }

    def replay(ranks: int, forward: float, backward: float) -> float:
        cost = LayerCost(forward, forward, backward, backward, 0, 0)
        costs = NetworkCost([cost] * steps, 0.0, 0.0, 0.0, states)
        found = _bindings.load().plan_multigrid(steps, ranks, description, costs.describe(), machine.describe())
        return found["seconds"]

    # All steps cost the same, so the replay of one rank gives the numbers of steps.
    forward, backward = times.forward / replay(1, 1.0, 0.0), times.backward / replay(1, 0.0, 1.0)
    return replay(ranks, forward, backward)


def _replay_newton(
    times: PassTimes, iterations: tuple[int, int], ranks: int, states: int, weights: int, machine: Machine
) -> float:
    graph = newton_tasks(times, iterations, ranks, states, weights)
    return _bindings.load().plan_replay(graph, machine.describe())["seconds"]
