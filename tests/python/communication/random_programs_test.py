"""Random programs on several ranks: every derivative equals that of a single process.

A failure prints its seed. WEFT_PROGRAM_SEED=<seed> runs that program alone, WEFT_PROGRAMS sets their number and
WEFT_PROGRAMS_FROM the first seed. `make test-programs` runs 10^4.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.autograd.forward_ad as fwd
from communication.random_programs import Program, execute, generate, make_directions, make_leaves, simulate
from torch import Tensor
from torch.func import grad, jvp
from torch.utils.checkpoint import checkpoint

import weft

PROGRAMS = int(os.environ.get("WEFT_PROGRAMS", "400"))
FIRST = int(os.environ.get("WEFT_PROGRAMS_FROM", "0"))

Leaves = Sequence[Tensor]


@pytest.fixture(scope="module")
def comms() -> dict[str, weft.Communicator]:
    weft.configure(weft.Options(timeout=60))
    world = weft.world()
    return {
        "world": world,
        "parity": world.split(world.rank % 2),
        "reversed": world.split(0, key=-world.rank),
    }


def along(gradients: Leaves, directions: Leaves) -> Tensor:
    return torch.stack([(g * v).sum() for g, v in zip(gradients, directions, strict=True)]).sum()


def expected(program: Program, rank: int) -> list[Tensor]:
    """Returns this rank's derivatives, computed in one process."""
    leaves = [leaf for r in range(program.ranks) for leaf in make_leaves(program, r)]
    directions = [v for r in range(program.ranks) for v in make_directions(program, r)]
    each = len(program.leaves)
    mine = slice(rank * each, (rank + 1) * each)
    if not program.transformed:  # a leaf without requires_grad has no tangent
        directions = [v if leaf.requires_grad else torch.zeros_like(v) for v, leaf in zip(directions, leaves)]

    def losses(*flat: Tensor) -> Tensor:
        by_rank = [flat[r * each : (r + 1) * each] for r in range(program.ranks)]
        return torch.stack(simulate(program, by_rank))

    def tangents(*flat: Tensor) -> Tensor:
        return jvp(losses, flat, tuple(directions))[1]

    leaves = [leaf.detach() for leaf in leaves]
    all_leaves = tuple(range(len(leaves)))
    gradient = grad(lambda *flat: losses(*flat).sum(), argnums=all_leaves)
    if program.mode == "func jvp":
        return [tangents(*leaves)[rank]]
    if program.mode == "func forward over forward":
        return [jvp(tangents, tuple(leaves), tuple(directions))[1][rank]]
    if "over" in program.mode:
        return list(jvp(gradient, tuple(leaves), tuple(directions))[1][mine])
    return list(gradient(*leaves)[mine])


def results(program: Program, comms: dict[str, weft.Communicator]) -> list[Tensor]:
    """Returns this rank's derivatives, computed with weft. Those of leaves without requires_grad are None."""
    rank = comms["world"].rank
    leaves, directions = make_leaves(program, rank), make_directions(program, rank)
    return (
        transformed(program, comms, leaves, directions)
        if program.transformed
        else taped(program, comms, leaves, directions)
    )


def taped(program: Program, comms: dict[str, weft.Communicator], leaves: Leaves, directions: Leaves) -> list[Tensor]:
    """Differentiates with weft.backward, weft.grad and dual numbers."""
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    vectors = [v for leaf, v in zip(leaves, directions, strict=True) if leaf.requires_grad]
    if program.mode in ("backward", "plain"):
        loss = execute(program, comms, leaves)
        if program.mode == "backward":
            weft.backward(loss)
        else:
            loss = weft.anchor(torch.zeros(()) if loss is None else loss)
            if loss.requires_grad:
                loss.backward()
        return [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in wanted]
    nothing = torch.zeros((), dtype=torch.float64)
    if program.mode == "reverse over reverse":
        gradients = weft.grad(execute(program, comms, leaves), wanted, create_graph=True)
        return list(weft.grad(along(gradients, vectors) if wanted else None, wanted))
    with fwd.dual_level():
        duals = [fwd.make_dual(x, v) if x.requires_grad else x for x, v in zip(leaves, directions, strict=True)]
        loss = execute(program, comms, duals)
        tangent = None if loss is None else fwd.unpack_dual(loss).tangent
        if program.mode == "forward over reverse":
            gradients = weft.grad(loss, wanted, create_graph=True)
            weft.reset_tape()
            products = [fwd.unpack_dual(g).tangent for g in gradients]
            return [torch.zeros_like(x) if p is None else p.detach() for x, p in zip(wanted, products, strict=True)]
    # Not inside the level: there, torch fails to add some gradients ("ZeroTensors are immutable"), even without weft.
    return list(weft.grad(nothing if tangent is None else tangent, wanted))


def transformed(
    program: Program, comms: dict[str, weft.Communicator], leaves: Leaves, directions: Leaves
) -> list[Tensor]:
    """Differentiates with torch.func."""
    inputs = tuple(leaf.detach() for leaf in leaves)
    vectors = tuple(directions)
    every = tuple(range(len(inputs)))

    def loss(*leaves: Tensor) -> Tensor:
        result = execute(program, comms, leaves)
        return torch.zeros((), dtype=torch.float64) if result is None else result

    def tangent(*leaves: Tensor) -> Tensor:
        return jvp(loss, leaves, vectors)[1]

    gradient = grad(loss, argnums=every)
    modes: dict[str, Callable[[], Sequence[Tensor]]] = {
        "func grad": lambda: gradient(*inputs),
        "func jvp": lambda: [tangent(*inputs)],
        "func reverse over reverse": lambda: grad(lambda *x: along(gradient(*x), vectors), argnums=every)(*inputs),
        "func reverse over forward": lambda: grad(tangent, argnums=every)(*inputs),
        "func forward over reverse": lambda: jvp(gradient, inputs, vectors)[1],
        "func forward over forward": lambda: [jvp(tangent, inputs, vectors)[1]],
    }
    return list(modes[program.mode]())


def difference(program: Program, comms: dict[str, weft.Communicator]) -> float:
    """Returns the largest difference between this rank's derivatives and the simulation."""
    rank = comms["world"].rank
    want = expected(program, rank)
    if not program.transformed:
        want = [w for w, flags in zip(want, program.requires_grad, strict=True) if flags[rank]]
    got = results(program, comms)
    pairs = zip(got, want, strict=True)
    return max((((g - w).abs() / (1 + w.abs())).max().item() for g, w in pairs if w.numel()), default=0.0)


def test_derivatives_equal_a_single_process(comms: dict[str, weft.Communicator]) -> None:
    only = os.environ.get("WEFT_PROGRAM_SEED")
    wrong = []
    for seed in [int(only)] if only else range(FIRST, FIRST + PROGRAMS):
        program = generate(seed, comms["world"].size)
        try:
            worst = difference(program, comms)
        except Exception as error:
            raise AssertionError(f"program {seed} ({program.mode}) failed: {error}") from error
        if not worst < 1e-9:
            wrong.append((seed, program.mode, worst))
    assert not wrong, f"{len(wrong)} programs with wrong derivatives on rank {comms['world'].rank}: {wrong[:10]}"


def resume(comms: dict[str, weft.Communicator]) -> None:
    """Returns after all ranks have noticed a failure and rebuilt their communicators."""
    weft.reset_tape()
    for comm in comms.values():
        try:
            comm.barrier()
        except weft.PeerLost:
            comm.barrier()


def fail(_: Tensor) -> None:
    raise ValueError("planned failure")


def failing(program: Program, comms: dict[str, weft.Communicator], seed: int) -> str:
    """Runs a program in which one rank fails. Returns the text of the error that this rank raises, or "" if none."""
    rng = random.Random(f"failure/{seed}")
    rank = comms["world"].rank
    broken = rank == rng.randrange(program.ranks)
    kind = rng.choice(["hook", "argument", "checkpoint"])
    leaves = make_leaves(program, rank)
    try:
        loss = execute(program, comms, leaves)
        if kind == "argument":
            comms["world"].all_reduce(torch.ones(2), "planned failure" if broken else "sum")
        elif kind == "checkpoint":
            x = torch.ones(2, requires_grad=True)
            checkpoint(comms["world"].all_reduce, x, use_reentrant=False) if broken else comms["world"].all_reduce(x)
        loss = weft.anchor(torch.zeros(()) if loss is None else loss)
        if broken:
            (loss if loss.requires_grad else leaves[0].requires_grad_()).register_hook(fail)
        loss.backward() if loss.requires_grad else fail(loss)
    except (RuntimeError, ValueError) as error:
        return str(error)
    return ""


def test_failures_of_one_rank_reach_the_others(comms: dict[str, weft.Communicator]) -> None:
    """No rank hangs or continues with wrong numbers, and the next program works."""
    for seed in range(FIRST, FIRST + max(PROGRAMS // 25, 1)):
        program = generate(seed, comms["world"].size)
        program.mode = "backward"
        text = failing(program, comms, seed)
        assert text == "" or "planned failure" in text or "checkpoint" in text, f"program {seed}: {text}"
        resume(comms)
        assert difference(program, comms) < 1e-9, f"program {seed} after a failure"
