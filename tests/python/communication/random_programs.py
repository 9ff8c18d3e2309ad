"""Random communication programs and their evaluation in one process with plain torch.

A program is a list of instructions on numbered slots; every rank holds one tensor a slot. ``simulate`` runs all ranks
of a program in one graph, where communication is indexing, stacking and adding; ``execute`` runs one rank of it with
weft. The same seed gives the same program everywhere.

A program also has a mode: the derivative to compute and the transforms that compute it, see MODES.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

REDUCTIONS = ["sum", "mean", "prod", "min", "max"]
COMMUNICATORS = ["world", "parity", "reversed"]
# How a program is differentiated, and how often it is chosen. "func" modes use torch.func, whose transforms support the
# blocking collectives only. Second derivatives are products of the Hessian with a vector, or of it with two vectors.
MODES = {
    "backward": 8,
    "plain": 2,  # loss.backward() of an anchored loss
    "reverse over reverse": 2,
    "reverse over forward": 1,
    "forward over reverse": 1,
    "func grad": 2,
    "func jvp": 2,
    "func reverse over reverse": 1,
    "func reverse over forward": 2,
    "func forward over reverse": 2,
    "func forward over forward": 2,
}
LOCAL = "tanh product checkpoint"
BLOCKING = LOCAL + " all_reduce reduce broadcast all_gather gather scatter reduce_scatter all_to_all scan exscan"
ALL = BLOCKING + " sendrecv transfer iall_reduce ibroadcast iall_gather itransfer any"


@dataclass
class Instruction:
    name: str
    slots: list[int]
    comm: str = "world"
    args: dict[str, Any] = field(default_factory=dict)


@dataclass
class Program:
    ranks: int
    leaves: list[list[list[float]]]  # slot, rank, values
    requires_grad: list[list[bool]]  # slot, rank
    instructions: list[Instruction]
    weights: list[list[float]]  # slot, rank: weight in the loss; all zero on a rank without a loss
    has_loss: list[bool]
    mode: str
    directions: list[list[list[float]]]  # slot, rank, values: tangents and vectors for second derivatives
    late: dict[int, float]  # seconds by rank: some ranks are late with every instruction

    @property
    def transformed(self) -> bool:
        return self.mode.startswith("func")

    @property
    def has_tangents(self) -> bool:
        return "forward" in self.mode or self.mode.endswith("jvp")


def members(comm: str, ranks: int) -> list[list[int]]:
    """Returns the world ranks of each group of a communicator, in rank order."""
    if comm == "world":
        return [list(range(ranks))]
    if comm == "reversed":
        return [list(reversed(range(ranks)))]
    return [group for group in (list(range(0, ranks, 2)), list(range(1, ranks, 2))) if group]


def generate(seed: int, ranks: int) -> Program:
    rng = random.Random(f"{seed}/{ranks}")
    mode = rng.choices(list(MODES), weights=list(MODES.values()))[0]
    # Messages and non-blocking operations have no forward mode.
    names = ALL if mode in ("backward", "plain", "reverse over reverse") else BLOCKING
    sizes: list[list[int]] = []  # slot, rank: all tensors are vectors

    def uniform_slots() -> list[int]:
        return [i for i, each in enumerate(sizes) if len(set(each)) == 1]

    leaves, requires_grad = [], []
    for leaf in range(rng.randint(2, 4)):
        even = leaf == 0 or rng.random() < 0.6
        size = rng.randint(1, 5)
        each = [size if even else rng.randint(0, 4) for _ in range(ranks)]
        sizes.append(each)
        leaves.append([[rng.uniform(-1.5, 1.5) for _ in range(n)] for n in each])
        # torch.func differentiates all leaves.
        requires_grad.append([rng.random() < 0.7 or mode.startswith("func") for _ in range(ranks)])
    directions = [[[rng.uniform(-1, 1) for _ in values] for values in each] for each in leaves]

    instructions: list[Instruction] = []
    waiting: list[tuple[int, list[int]]] = []  # start of a non-blocking instruction, and the sizes of its result

    def wait_for(start: int, result: list[int]) -> None:
        # Each rank waits at any position after the start. Messages wait at the same position on all ranks.
        last = len(instructions)
        apart = instructions[start].name != "itransfer" and rng.random() < 0.7
        when = [rng.randint(start + 1, last) if apart else last for _ in range(ranks)]
        instructions.append(Instruction("wait", [], args={"of": start, "when": when}))
        sizes.append(result)

    for _ in range(rng.randint(3, 12)):
        if waiting and rng.random() < 0.4:
            wait_for(*waiting.pop(rng.randrange(len(waiting))))
            continue
        instruction, result = random_instruction(rng, names.split(), ranks, sizes, uniform_slots())
        instructions.append(instruction)
        if instruction.name.startswith("i"):
            waiting.append((len(instructions) - 1, result))
        else:
            sizes.append(result)
    for start, result in waiting:
        wait_for(start, result)
    has_loss = [rng.random() < 0.8 for _ in range(ranks)]
    weights = [[rng.choice([0.0, rng.uniform(-1, 1)]) for _ in range(ranks)] for _ in sizes]
    late = {rng.randrange(ranks): rng.uniform(0, 0.003)} if rng.random() < 0.1 else {}
    return Program(ranks, leaves, requires_grad, instructions, weights, has_loss, mode, directions, late)


def random_instruction(
    rng: random.Random, names: list[str], ranks: int, sizes: list[list[int]], uniform: list[int]
) -> tuple[Instruction, list[int]]:
    """Returns an instruction and the sizes of its result on every rank."""
    name = rng.choice(names)
    comm = rng.choice(COMMUNICATORS)
    groups = members(comm, ranks)
    slot = rng.choice(uniform)
    any_slot = rng.randrange(len(sizes))
    result = list(sizes[slot])
    # Roots and sizes by position within the group; a root must exist in the smallest group.
    root = rng.randrange(min(map(len, groups)))
    op = rng.choice(REDUCTIONS)
    if name in ("tanh", "checkpoint"):
        return Instruction(name, [any_slot], args={"scale": rng.uniform(0.5, 1.5)}), list(sizes[any_slot])
    if name == "product":
        fits = [i for i in uniform if sizes[i] == sizes[slot]]
        return Instruction(name, [slot, rng.choice(fits)]), result
    if name in ("all_reduce", "scan", "exscan"):
        op = rng.choice(["sum", "mean"]) if name == "exscan" else op
        return Instruction(name, [slot], comm, {"op": op, "reverse": rng.random() < 0.5}), result
    if name in ("iall_reduce",):
        return Instruction(name, [slot], comm, {"op": rng.choice(["sum", "mean"])}), result
    if name in ("reduce", "broadcast", "ibroadcast"):
        return Instruction(name, [slot], comm, {"op": op, "root": root}), result
    if name in ("all_gather", "gather", "iall_gather"):
        result = [0] * ranks
        for group in groups:
            for position, rank in enumerate(group):
                total = sum(sizes[any_slot][r] for r in group)
                result[rank] = total if name != "gather" or position == root else 0
        return Instruction(name, [any_slot], comm, {"root": root}), result
    if name in ("scatter", "reduce_scatter", "all_to_all"):
        pieces: dict[int, list[int]] = {}
        for group in groups:
            for rank in group if name == "all_to_all" else [group[root]]:
                pieces[rank] = cut(rng, sizes[slot][rank], len(group))
        for group in groups:
            for position, rank in enumerate(group):
                if name == "all_to_all":
                    result[rank] = sum(pieces[r][position] for r in group)
                else:
                    result[rank] = pieces[group[root]][position]
        return Instruction(name, [slot], comm, {"op": op, "root": root, "pieces": pieces}), result
    source, dest = rng.randrange(ranks), rng.randrange(ranks)
    if name == "sendrecv":
        shift = rng.randrange(ranks)
        return Instruction(name, [any_slot], args={"shift": shift}), [
            sizes[any_slot][(rank - shift) % ranks] for rank in range(ranks)
        ]
    result = list(sizes[any_slot])
    result[dest] = sizes[any_slot][source]
    # Few tags, so that messages with equal tags occur; a receive from any source needs a unique tag.
    tag = rng.randrange(1000, 1_000_000) if name == "any" else rng.randrange(3)
    return Instruction(name, [any_slot], args={"source": source, "dest": dest, "tag": tag}), result


def cut(rng: random.Random, total: int, parts: int) -> list[int]:
    points = sorted(rng.randint(0, total) for _ in range(parts - 1))
    return [b - a for a, b in zip([0, *points], [*points, total])]


def reduce_all(tensors: list[torch.Tensor], op: str) -> torch.Tensor:
    stacked = torch.stack(tensors)
    if op == "prod":
        return stacked.prod(0)
    return {"sum": torch.sum, "mean": torch.mean, "min": torch.amin, "max": torch.amax}[op](stacked, 0)


def make_leaves(program: Program, rank: int) -> list[torch.Tensor]:
    return [
        torch.tensor(values[rank], dtype=torch.float64, requires_grad=flags[rank])
        for values, flags in zip(program.leaves, program.requires_grad)
    ]


def make_directions(program: Program, rank: int) -> list[torch.Tensor]:
    return [torch.tensor(values[rank], dtype=torch.float64) for values in program.directions]


def simulate(program: Program, leaves: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
    """Returns the losses of all ranks, computed in one process. The leaves are given by rank."""
    ranks = range(program.ranks)
    slots: list[list[torch.Tensor]] = [[leaves[rank][i] for rank in ranks] for i in range(len(program.leaves))]
    results: dict[int, list[torch.Tensor]] = {}
    for index, instruction in enumerate(program.instructions):
        if instruction.name == "wait":
            slots.append(results[instruction.args["of"]])
            continue
        result = simulate_one(program, instruction, [slots[i] for i in instruction.slots])
        if instruction.name.startswith("i"):
            results[index] = result
        else:
            slots.append(result)
    nothing = torch.zeros((), dtype=torch.float64)
    return [
        loss_of(program, rank, [slot[rank] for slot in slots]) if program.has_loss[rank] else nothing for rank in ranks
    ]


def simulate_one(program: Program, instruction: Instruction, inputs: list[list[torch.Tensor]]) -> list[torch.Tensor]:
    args, x = instruction.args, inputs[0]
    name = instruction.name.removeprefix("i")
    result = list(x)
    if name in ("tanh", "checkpoint"):
        return [torch.tanh(args["scale"] * t) for t in x]
    if name == "product":
        return [a * b for a, b in zip(*inputs)]
    if name == "sendrecv":
        return [x[(rank - args["shift"]) % program.ranks] * 1 for rank in range(program.ranks)]
    if name in ("transfer", "any"):
        result[args["dest"]] = x[args["source"]] * 1
        return result
    for group in members(instruction.comm, program.ranks):
        mine = [x[rank] for rank in group]
        for position, rank in enumerate(group):
            result[rank] = simulate_collective(name, args, group, mine, position)
    return result


def simulate_collective(
    name: str, args: dict[str, Any], group: list[int], mine: list[torch.Tensor], position: int
) -> torch.Tensor:
    root = args.get("root", 0)
    if name == "all_reduce":
        return reduce_all(mine, args["op"])
    if name == "reduce":
        return reduce_all(mine, args["op"]) if position == root else torch.zeros_like(mine[position])
    if name == "broadcast":
        return mine[root] * 1
    if name == "all_gather":
        return torch.cat(mine)
    if name == "gather":
        return torch.cat(mine) if position == root else mine[position][:0] * 1
    if name in ("scan", "exscan"):
        inclusive = 1 if name == "scan" else 0
        part = mine[position + 1 - inclusive :] if args["reverse"] else mine[: position + inclusive]
        return reduce_all(part, args["op"]) if part else torch.zeros_like(mine[position])
    if name == "all_to_all":
        return torch.cat([t.split(args["pieces"][rank])[position] for t, rank in zip(mine, group)])
    whole = mine[root] if name == "scatter" else reduce_all(mine, args["op"])
    return whole.split(args["pieces"][group[root]])[position] * 1


def loss_of(program: Program, rank: int, slots: list[torch.Tensor]) -> torch.Tensor:
    loss = torch.zeros((), dtype=torch.float64)
    for weight, slot in zip(program.weights, slots):
        if weight[rank] != 0:
            loss = loss + weight[rank] * torch.sin(slot).sum()
    return loss


def execute(program: Program, comms: dict[str, Any], leaves: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Runs this rank's part with weft; returns its loss, or None."""
    rank = comms["world"].rank
    slots = list(leaves)
    pending: dict[int, Any] = {}
    finished: dict[int, torch.Tensor] = {}
    waits = [instruction.args for instruction in program.instructions if instruction.name == "wait"]
    for index, instruction in enumerate(program.instructions):
        if rank in program.late:
            time.sleep(program.late[rank])
        for wait in waits:
            if wait["when"][rank] == index:
                request = pending.pop(wait["of"])
                finished[wait["of"]] = request() if callable(request) else request.wait()
        if instruction.name == "wait":
            slots.append(finished[instruction.args["of"]])
            continue
        result = execute_one(program, instruction, [slots[i] for i in instruction.slots], comms)
        if instruction.name.startswith("i"):
            pending[index] = result
        else:
            slots.append(result)
    return loss_of(program, rank, slots) if program.has_loss[rank] else None


def execute_one(program: Program, instruction: Instruction, inputs: list[torch.Tensor], comms: dict[str, Any]) -> Any:
    args, name, x = instruction.args, instruction.name, inputs[0]
    comm, world = comms[instruction.comm], comms["world"]
    if name == "tanh":
        return torch.tanh(args["scale"] * x)
    if name == "checkpoint":
        # torch.func and forward mode cannot differentiate a checkpoint.
        if program.transformed or program.has_tangents:
            return torch.tanh(args["scale"] * x)
        return checkpoint(lambda t: torch.tanh(args["scale"] * t), x, use_reentrant=False)
    if name == "product":
        return inputs[0] * inputs[1]
    if name == "sendrecv":
        shift = args["shift"]
        return world.sendrecv(x, dest=(world.rank + shift) % world.size, source=(world.rank - shift) % world.size)
    if name in ("transfer", "itransfer", "any"):
        return execute_transfer(instruction, x, world)
    group = next(g for g in members(instruction.comm, program.ranks) if world.rank in g)
    if name in ("all_reduce", "iall_reduce"):
        return getattr(comm, name)(x, args["op"])
    if name in ("scan", "exscan"):
        return getattr(comm, name)(x, args["op"], reverse=args["reverse"])
    if name == "reduce":
        return comm.reduce(x, args["op"], root=args["root"])
    if name in ("broadcast", "ibroadcast"):
        return getattr(comm, name)(x, root=args["root"])
    if name in ("all_gather", "iall_gather"):
        return getattr(comm, name)(x)
    if name == "gather":
        return comm.gather(x, root=args["root"])
    if name == "all_to_all":
        return comm.all_to_all(x, split_sizes=args["pieces"][world.rank])
    pieces = args["pieces"][group[args["root"]]]
    if name == "scatter":
        return comm.scatter(x, root=args["root"], sizes=pieces)
    return comm.reduce_scatter(x, args["op"], sizes=pieces)


def execute_transfer(instruction: Instruction, x: torch.Tensor, world: Any) -> Any:
    """A message between two ranks; the sender and all other ranks keep their tensor."""
    source, dest, tag = (instruction.args[key] for key in ("source", "dest", "tag"))
    blocking = instruction.name != "itransfer"
    # A unique tag for blocking transfers: an earlier itransfer with an equal tag may still be pending.
    tag = tag + 10 if blocking else tag + 20
    sending = world.isend(x, dest, tag) if world.rank == source else None
    receiving = None
    if world.rank == dest:
        if instruction.name == "any":
            receiving = world.irecv(source=None, tag=tag)
        else:
            receiving = world.irecv(source=source, tag=tag)

    def finish() -> torch.Tensor:
        received = receiving.wait() if receiving is not None else x
        if sending is not None:
            sending.wait()
        return received

    return finish() if blocking else finish
