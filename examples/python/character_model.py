"""Trains a language model of characters whose blocks contain ParaGRUs, with the text split over the ranks.

mpirun -n 2 python character_model.py [--solver newton] ...

The text is the language reference that Python ships for help(). Each rank holds a piece of every window of characters.
A ParaGRU has a diagonal Jacobian, so that Newton's method solves it in a few iterations; --solver selects how the ranks
compute the recurrence together.
"""

from __future__ import annotations

import argparse
import math
import time
from pydoc_data import topics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft


class Block(nn.Module):
    """A recurrent layer and a multilayer perceptron, each with a residual connection."""

    def __init__(self, comm: weft.Communicator, width: int, heads: int, solver: str) -> None:
        super().__init__()
        self.before_rnn = nn.LayerNorm(width)
        self.rnn = weft.ParaGRU(width, width, heads=heads, comm=comm, solver=solver)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.rnn(self.before_rnn(x))
        x = x + y
        return x + self.mlp(x)


class CharacterModel(nn.Module):
    """Predicts the next character at every position. Collective: each rank passes its piece [steps, batch]."""

    def __init__(self, comm: weft.Communicator, characters: int, options: argparse.Namespace) -> None:
        super().__init__()
        self.comm = comm
        self.embedding = nn.Embedding(characters, options.width)
        self.blocks = nn.Sequential(
            *(Block(comm, options.width, options.heads, options.solver) for _ in range(options.blocks))
        )
        self.output = nn.Sequential(nn.LayerNorm(options.width), nn.Linear(options.width, characters))

    def forward(self, text: Tensor) -> Tensor:
        return self.output(self.blocks(self.embedding(text)))

    def sum_gradients(self) -> None:
        """Collective. Sums the gradients of all ranks, except those that the recurrent layers have already summed."""
        recurrent = {id(p) for block in self.blocks for p in block.rnn.parameters()}
        for parameter in self.parameters():
            if id(parameter) not in recurrent:
                parameter.grad = self.comm.all_reduce(parameter.grad)


def draw_windows(text: Tensor, steps: int, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Returns random windows of the text [steps, batch] and the characters that follow each of theirs."""
    starts = torch.randint(len(text) - steps - 1, (batch,), generator=generator)
    windows = torch.stack([text[start : start + steps + 1] for start in starts.tolist()], dim=1)
    return windows[:-1], windows[1:]


def loss_of(model: CharacterModel, inputs: Tensor, targets: Tensor) -> Tensor:
    """Collective. Returns this rank's share of the mean loss per character, in nats."""
    comm = model.comm
    piece, wanted = (part.tensor_split(comm.size)[comm.rank] for part in (inputs, targets))
    scores = model(piece)
    return F.cross_entropy(scores.flatten(0, 1), wanted.flatten(), reduction="sum") / targets.numel()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--solver", default="auto", help="solver of the recurrence (default auto)")
    parser.add_argument("--blocks", type=int, default=2, help="number of blocks (default 2)")
    parser.add_argument("--width", type=int, default=64, help="size of the hidden states (default 64)")
    parser.add_argument("--heads", type=int, default=2, help="blocks of the input weights (default 2)")
    parser.add_argument("--steps", type=int, default=512, help="characters per window (default 512)")
    parser.add_argument("--batch", type=int, default=8, help="windows per mini-batch (default 8)")
    parser.add_argument("--batches", type=int, default=200, help="number of mini-batches (default 200)")
    parser.add_argument("--rate", type=float, default=3e-3, help="learning rate of AdamW (default 0.003)")
    parser.add_argument("--seed", type=int, default=1, help="seed of weights and windows (default 1)")
    return parser.parse_args()


def main() -> None:
    options = parse()
    comm = weft.world()
    whole = "\n".join(topics.topics[name] for name in sorted(topics.topics))
    characters = sorted(set(whole))
    numbers = {character: number for number, character in enumerate(characters)}
    text = torch.tensor([numbers[character] for character in whole])
    training, test = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]

    torch.manual_seed(options.seed)  # the same weights on all ranks
    model = CharacterModel(comm, len(characters), options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
    generator = torch.Generator().manual_seed(options.seed)
    held_out = draw_windows(test, options.steps, options.batch, torch.Generator().manual_seed(options.seed))
    if comm.rank == 0:
        print(f"{len(text)} characters, {len(characters)} different ones, {comm.size} ranks", flush=True)
    start = time.perf_counter()
    for batch in range(1, options.batches + 1):
        optimizer.zero_grad()
        loss = loss_of(model, *draw_windows(training, options.steps, options.batch, generator))
        weft.backward(loss)
        model.sum_gradients()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if batch % 50 and batch != options.batches:
            continue
        with torch.no_grad():
            mean, tested = comm.all_reduce(torch.stack([loss.detach(), loss_of(model, *held_out)])).tolist()
        if comm.rank == 0:
            bits = tested / math.log(2)
            seconds = time.perf_counter() - start
            solver = model.blocks[0].rnn.choice
            print(
                f"batch {batch}: loss {mean:.4f}, test {bits:.3f} bits per character, {seconds:.1f} s, {solver}",
                flush=True,
            )


if __name__ == "__main__":
    main()
