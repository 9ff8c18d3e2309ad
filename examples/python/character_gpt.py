"""Trains a small GPT that predicts characters, with its blocks spread over the ranks.

mpirun -n 2 python character_gpt.py [--solver pipeline] ...

The text is the language reference that Python ships for help(). Each block of the transformer is a time step. The first
and the last block run exactly on rank 0; the solver evaluates those between them: one after another (serial), in
micro-batches that flow from rank to rank (pipeline, exact), or all at the same time by multigrid (mgrit, approximate).
With --control, an IterationController compares multigrid's gradients with exact ones and prints its log at the end.
"""

from __future__ import annotations

import argparse
import time
from pydoc_data import topics
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from weft.layer_parallel import BufferedNetwork, EncoderBlock


class CharacterGPT:
    """Embeddings and the output layer on rank 0, and between them the blocks, of which each rank holds a part."""

    def __init__(self, comm: weft.Communicator, characters: int, options: argparse.Namespace) -> None:
        torch.manual_seed(options.seed)  # the same weights for any number of ranks
        width = options.width
        self.tokens = nn.Embedding(characters, width)
        self.positions = nn.Embedding(options.context, width)
        self.output = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, characters))
        self.control = weft.IterationController(options.control, bound=options.bound, every=options.every)
        self.blocks = BufferedNetwork(
            comm,
            lambda number: EncoderBlock(width, options.heads, 4 * width, options.dropout, "gelu", causal=True),
            steps=options.blocks,
            tf=options.tf,
            opening=1,
            closing=1,
            control=self.control,
            **solver_options(options),
        )
        self.first = comm.rank == 0

    def parameters(self) -> list[nn.Parameter]:
        """The parameters that this rank trains."""
        ends = [self.tokens, self.positions, self.output] if self.first else []
        return [parameter for part in (self.blocks, *ends) for parameter in part.parameters()]

    def loss(self, text: Tensor, following: Tensor) -> Tensor:
        """Collective. Returns the mean loss per character, in nats, on rank 0; a zero on other ranks."""
        return self.blocks.loss(self._loss_of, self.blocks.middle.compose(self._embed, text), following)

    def _embed(self, text: Tensor) -> Tensor:
        return self.tokens(text) + self.positions.weight[: text.shape[1]]

    def _loss_of(self, states: Tensor, following: Tensor) -> Tensor:
        return F.cross_entropy(self.output(states).flatten(0, 1), following.flatten())


def solver_options(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the arguments of LayerParallel for the chosen solver."""
    if options.solver == "pipeline":
        return {"solver": "pipeline", "micro_batches": options.micro_batches}
    return {
        "levels": 1 if options.solver == "serial" else 2,
        "cfactor": options.cfactor,
        "forward": weft.Solve(iterations=options.iterations),
        "backward": weft.Solve(iterations=options.iterations),
    }


def encode(text: str) -> tuple[Tensor, int]:
    """Returns the numbers of the characters, and how many different ones there are."""
    characters = sorted(set(text))
    numbers = {character: number for number, character in enumerate(characters)}
    return torch.tensor([numbers[character] for character in text]), len(characters)


def draw_windows(text: Tensor, options: argparse.Namespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Returns random windows of the text [batch, context] and the characters that follow each of theirs."""
    starts = torch.randint(len(text) - options.context - 1, (options.batch,), generator=generator)
    windows = torch.stack([text[start : start + options.context + 1] for start in starts.tolist()])
    return windows[:, :-1], windows[:, 1:]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--solver", default="mgrit", choices=["serial", "pipeline", "mgrit"], help="default mgrit")
    parser.add_argument("--blocks", type=int, default=18, help="number of blocks (default 18)")
    parser.add_argument("--tf", type=float, default=4.5, help="end time; a step is tf / blocks (default 4.5)")
    parser.add_argument("--cfactor", type=int, default=2, help="coarsening factor of multigrid (default 2)")
    parser.add_argument("--iterations", type=int, default=1, help="iterations of each multigrid solve (default 1)")
    parser.add_argument("--control", default="off", choices=["off", "report", "adapt"], help="default off")
    parser.add_argument("--bound", type=float, default=0.1, help="largest accepted gradient bias (default 0.1)")
    parser.add_argument("--every", type=int, default=10, help="mini-batches between two comparisons (default 10)")
    parser.add_argument("--micro-batches", type=int, help="of the pipeline (default four per rank)")
    parser.add_argument("--width", type=int, default=32, help="size of the states (default 32)")
    parser.add_argument("--heads", type=int, default=4, help="attention heads (default 4)")
    parser.add_argument("--context", type=int, default=64, help="characters per window (default 64)")
    parser.add_argument("--dropout", type=float, default=0.1, help="fraction of dropped activations (default 0.1)")
    parser.add_argument("--batch", type=int, default=8, help="windows per mini-batch (default 8)")
    parser.add_argument("--batches", type=int, default=300, help="number of mini-batches (default 300)")
    parser.add_argument("--report", type=int, default=50, help="mini-batches from one line to the next (default 50)")
    parser.add_argument("--rate", type=float, default=3e-3, help="learning rate of AdamW (default 0.003)")
    parser.add_argument("--seed", type=int, default=1, help="seed of weights, windows and dropout (default 1)")
    return parser.parse_args()


def main() -> None:
    options = parse()
    comm = weft.world()
    text, characters = encode("\n".join(topics.topics[name] for name in sorted(topics.topics)))
    training, test = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    model = CharacterGPT(comm, characters, options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
    generator = torch.Generator().manual_seed(options.seed)
    held_out = draw_windows(test, options, torch.Generator().manual_seed(options.seed))
    if comm.rank == 0:
        print(f"{options.blocks} blocks on {comm.size} ranks, solver {options.solver}", flush=True)
    start, total = time.perf_counter(), 0.0
    for batch in range(1, options.batches + 1):
        optimizer.zero_grad()
        loss = model.loss(*draw_windows(training, options, generator))
        weft.backward(loss)
        weft.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
        if batch % options.report and batch != options.batches:
            continue
        model.blocks.eval()
        with torch.no_grad():
            tested = model.loss(*held_out).item()
        model.blocks.train()
        if comm.rank == 0:
            mean = total / (options.report if batch % options.report == 0 else batch % options.report)
            seconds = time.perf_counter() - start
            print(f"batch {batch}: loss {mean:.4f}, test {tested:.4f}, {seconds:.1f} s", flush=True)
        total = 0.0
    if comm.rank == 0 and model.control.log:
        print(model.control)


if __name__ == "__main__":
    main()
