"""At least 1,000 random programs per number of ranks: every gradient equals that of a single process.

A failure prints its seed; WEFT_PROGRAM_SEED=<seed> runs that program alone, WEFT_PROGRAMS sets how many.
"""

from __future__ import annotations

import os

import torch
from communication.random_programs import execute, generate, simulate

import weft

PROGRAMS = int(os.environ.get("WEFT_PROGRAMS", "1000"))


def communicators() -> dict[str, weft.Communicator]:
    world = weft.world()
    return {
        "world": world,
        "parity": world.split(world.rank % 2),
        "reversed": world.split(0, key=-world.rank),
    }


def difference(seed: int, comms: dict[str, weft.Communicator]) -> float:
    """Returns the largest difference between this rank's gradients and the simulation."""
    world = comms["world"]
    program = generate(seed, world.size)
    expected = simulate(program)[world.rank]
    loss, leaves = execute(program, comms)
    weft.backward(loss)
    worst = 0.0
    for leaf, want in zip(leaves, expected):
        if not leaf.requires_grad:
            continue
        want = torch.zeros_like(leaf) if want is None else want
        got = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        if leaf.numel():
            worst = max(worst, ((got - want).abs() / (1 + want.abs())).max().item())
    return worst


def test_gradients_equal_a_single_process() -> None:
    weft.configure(weft.Options(timeout=60))
    comms = communicators()
    only = os.environ.get("WEFT_PROGRAM_SEED")
    wrong = []
    for seed in [int(only)] if only else range(PROGRAMS):
        try:
            worst = difference(seed, comms)
        except Exception as error:
            raise AssertionError(f"program {seed} at {comms['world'].size} ranks failed: {error}") from error
        if not worst < 1e-9:
            wrong.append((seed, worst))
    assert not wrong, f"{len(wrong)} programs with wrong gradients on rank {comms['world'].rank}: {wrong[:10]}"
