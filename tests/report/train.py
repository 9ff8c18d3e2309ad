"""Trains a small network on several ranks and leaves a run's folder: mpirun -n 4 python tests/report/train.py <folder>.

What the report's test opens in a browser comes from a real run this way, also where the command weft is not built.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import weft
from weft import data

EPOCHS, BATCH, RATE = 3, 100, 0.05


class Network(nn.Module):
    """A classifier, and an autoencoder with the transposed weights for its reconstructions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 7)
        self.out = nn.Linear(16 * 11 * 11, 10)
        self.code = nn.Linear(784, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(functional.max_pool2d(self.conv(x).relu(), 2).flatten(1))

    def reconstruct(self, x: Tensor) -> Tensor:
        return functional.linear(self.code(x.flatten(1)).relu(), self.code.weight.t()).view_as(x)


class Recorder:
    """Metrics of rank 0 and spans of every rank."""

    def __init__(self, comm: weft.Communicator, run: Path) -> None:
        self.comm, self.run = comm, run
        self.events: list[dict[str, object]] = []

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        begin = time.monotonic_ns()
        yield
        took = time.monotonic_ns() - begin
        self.events.append(
            {"ph": "X", "name": name, "pid": self.comm.rank, "tid": 0, "ts": begin / 1000, "dur": took / 1000}
        )

    def metric(self, epoch: int, step: int, name: str, value: float) -> None:
        if self.comm.rank == 0:
            line = {"epoch": epoch, "step": step, "name": name, "value": value, "time": time.time()}
            with (self.run / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")

    def write_trace(self) -> None:
        mine = torch.frombuffer(bytearray(json.dumps(self.events)[1:-1].encode() + b","), dtype=torch.uint8)
        text = bytes(self.comm.all_gather(mine, dim=0).tolist()).decode()
        if self.comm.rank == 0:
            (self.run / "trace.json").write_text(f'{{"traceEvents": [{text[:-1]}]}}')


def train(net: Network, images: data.Mnist, recorder: Recorder) -> None:
    comm = recorder.comm
    optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=0.9)
    step = 0
    for epoch in range(EPOCHS):
        for batch in data.shuffled_batches(len(images.train.labels), epoch, size=BATCH):
            with recorder.span("data/make batch"):
                mine = images.train.select(data.shard(batch, comm.size, comm.rank))
                x = data.unit_floats(mine.images)
            with recorder.span("train/forward"):
                loss = functional.cross_entropy(net(x), mine.labels, reduction="sum") / len(batch)
                rebuilt = functional.mse_loss(net.reconstruct(x), x, reduction="sum") / len(batch)
            optimizer.zero_grad()
            with recorder.span("train/backward"):
                (loss + 0.01 * rebuilt).backward()
            with recorder.span("train/sum gradients"), torch.no_grad():
                for parameter in net.parameters():
                    parameter.grad = comm.all_reduce(parameter.grad)
            optimizer.step()
            step += 1
            recorder.metric(epoch, step, "train/loss", float(comm.all_reduce(loss.detach())))
            recorder.metric(epoch, step, "train/reconstruction", float(comm.all_reduce(rebuilt.detach())))
        with recorder.span("test"), torch.no_grad():
            scores = net(data.unit_floats(images.test.images))
            recorder.metric(epoch, step, "test/loss", float(functional.cross_entropy(scores, images.test.labels)))
            recorder.metric(epoch, step, "test/error", float((scores.argmax(1) != images.test.labels).float().mean()))


def stimulus(net: Network, unit: int) -> Tensor:
    """The image of length 1 that excites an output most."""
    x = torch.full((1, 1, 28, 28), 0.1).requires_grad_()
    for _ in range(30):
        (slope,) = torch.autograd.grad(net(x)[0, unit], x)
        x = functional.normalize((x + slope).flatten(), dim=0).view_as(x).detach().requires_grad_()
    return x.detach()


def write_pictures(net: Network, images: data.Mnist, folder: Path) -> None:
    folder.mkdir(parents=True)

    def write(name: str, title: str, pictures: list[tuple[str, Tensor]]) -> None:
        height, width = pictures[0][1].shape[-2:]
        shown = [{"label": label, "pixels": image.flatten().tolist()} for label, image in pictures]
        content = {"title": title, "channels": 1, "height": height, "width": width, "images": shown}
        (folder / f"{name}.json").write_text(json.dumps(content))

    some = data.unit_floats(images.test.images[::90])
    with torch.no_grad():
        rebuilt = net.reconstruct(some)
        found = net(data.unit_floats(images.test.images)).argmax(1)
    write("filters", "Convolution, 7 x 7", [(str(i), f) for i, f in enumerate(net.conv.weight.detach())])
    pairs = [pair for x, y in zip(some, rebuilt) for pair in (("input", x), ("rebuilt", y))]
    write("reconstructions", "Inputs and what the code of 64 numbers gives back", pairs)
    write("stimuli", "Images that excite each output most", [(str(i), stimulus(net, i)) for i in range(10)])
    counts = torch.zeros(10, 10, dtype=torch.int64)
    counts.index_put_((images.test.labels, found), torch.tensor(1), accumulate=True)
    (folder / "confusion.json").write_text(json.dumps({"title": "Test set", "counts": counts.tolist()}))


def main() -> None:
    comm, run = weft.world(), Path(sys.argv[1])
    torch.manual_seed(1)
    net, images = Network(), data.mnist()
    run.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(comm, run)
    train(net, images, recorder)
    recorder.write_trace()
    if comm.rank == 0:
        rows = [
            {"rank": r, "images of a batch": len(data.shard(torch.arange(BATCH), comm.size, r))}
            for r in range(comm.size)
        ]
        (run / "split.json").write_text(json.dumps(rows))
        (run / "config.yaml").write_text(
            f"epochs: {EPOCHS}\nbatch: {BATCH}\nlearning_rate: {RATE}\nranks: {comm.size}\n"
        )
        write_pictures(net, images, run / "pictures")


if __name__ == "__main__":
    main()
