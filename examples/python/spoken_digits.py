"""Recognises spoken digits with a GRU whose sequences are split over the ranks.

mpirun -n 2 python spoken_digits.py recordings.tar.gz [--solver pipeline] ...

The data set is the Free Spoken Digit Dataset: 3,000 recordings of 6 speakers at 8 kHz. The network reads log-mel
features, 100 frames per second. Each rank holds a piece of every sequence; --solver selects how the ranks compute the
recurrence together. All solvers find the same weights up to their tolerance; --solver all trains with one after the
other.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tarfile
import time
import wave
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from weft import data

SAMPLES_PER_SECOND = 8000
WINDOW = 200  # samples: 25 ms
HOP = 80  # samples: 10 ms
SPECTRUM = 256  # samples of a Fourier transform
CLASSES = 10
SOLVERS = ["serial", "pipeline", "newton", "mgrit", "auto"]
TEST_RECORDINGS = 5  # of each speaker and digit, as usual for this data set


class Recordings(NamedTuple):
    """Features [frames, recordings, bands], the number of frames of each recording, and its digit."""

    features: Tensor
    lengths: Tensor
    digits: Tensor


def mel_filters(bands: int) -> Tensor:
    """Returns triangular filters [bands, frequencies] that are spaced evenly on the mel scale."""
    top = 2595 * torch.log10(torch.tensor(1 + SAMPLES_PER_SECOND / 2 / 700))
    mels = torch.linspace(0, float(top), bands + 2)
    edges = 700 * (10 ** (mels / 2595) - 1)
    frequencies = torch.linspace(0, SAMPLES_PER_SECOND / 2, SPECTRUM // 2 + 1)
    left, centre, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    return torch.minimum((frequencies - left) / (centre - left), (right - frequencies) / (right - centre)).clamp(min=0)


def log_mel(samples: Tensor, filters: Tensor) -> Tensor:
    """Returns features [frames, bands] with mean 0 and variance 1."""
    padded = F.pad(samples, (0, max(0, SPECTRUM - len(samples))))
    spectrum = torch.stft(padded, SPECTRUM, HOP, WINDOW, torch.hann_window(WINDOW), center=False, return_complex=True)
    features = (filters @ spectrum.abs().square() + 1e-6).log().T
    return (features - features.mean()) / features.std().clamp(min=1e-3)


def read_wave(content: bytes) -> Tensor:
    """Returns the samples of a recording in [-1, 1]. Raises ValueError for a format that the data set does not use."""
    with wave.open(io.BytesIO(content)) as file:
        if (file.getnchannels(), file.getsampwidth(), file.getframerate()) != (1, 2, SAMPLES_PER_SECOND):
            raise ValueError("expected mono recordings with 16 bits and 8 kHz")
        raw = bytearray(file.readframes(file.getnframes()))
    return torch.frombuffer(raw, dtype=torch.int16).float() / 32768


def read_files(path: Path) -> dict[str, bytes]:
    """Returns the recordings in a folder or in an archive, by name: digit_speaker_index."""
    if path.is_dir():
        return {file.stem: file.read_bytes() for file in sorted(path.glob("*.wav"))}
    with tarfile.open(path) as archive:
        members = sorted((member for member in archive if member.name.endswith(".wav")), key=lambda m: m.name)
        opened = {Path(member.name).stem: archive.extractfile(member) for member in members}
        return {name: file.read() for name, file in opened.items() if file is not None}


def read_recordings(path: Path, bands: int, frames: int) -> tuple[Recordings, Recordings]:
    """Returns training and test recordings. Longer recordings are cut after ``frames`` frames."""
    filters = mel_filters(bands)
    found: dict[bool, list[tuple[Tensor, int]]] = {False: [], True: []}
    for name, content in read_files(path).items():
        digit, _, index = name.split("_")
        features = log_mel(read_wave(content), filters)[:frames]
        found[int(index) < TEST_RECORDINGS].append((features, int(digit)))
    return _padded(found[False], frames), _padded(found[True], frames)


def _padded(recordings: list[tuple[Tensor, int]], frames: int) -> Recordings:
    features = torch.stack([F.pad(x, (0, 0, 0, frames - len(x))) for x, _ in recordings], dim=1)
    lengths = torch.tensor([len(x) for x, _ in recordings])
    return Recordings(features, lengths, torch.tensor([digit for _, digit in recordings]))


class Network(nn.Module):
    """A GRU and a classifier of its final state, which all ranks have."""

    def __init__(self, comm: weft.Communicator, bands: int, options: argparse.Namespace) -> None:
        super().__init__()
        self.comm = comm
        self.rnn = weft.GRU(bands, options.hidden, comm=comm, solver=options.solver)
        self.classifier = nn.Linear(options.hidden, CLASSES)

    def forward(self, batch: Recordings) -> Tensor:
        """Returns the scores of the digits on every rank."""
        frames = len(batch.features)
        ends = [frames * rank // self.comm.size for rank in range(self.comm.size + 1)]
        piece = batch.features[ends[self.comm.rank] : ends[self.comm.rank + 1]]
        _, final = self.rnn(piece, lengths=batch.lengths)
        return self.classifier(final[-1])


def select(recordings: Recordings, which: Tensor) -> Recordings:
    return Recordings(recordings.features[:, which], recordings.lengths[which], recordings.digits[which])


def train(network: Network, optimizer: torch.optim.Optimizer, batches: list[Recordings]) -> float:
    """Trains on the batches and returns the mean loss."""
    total = 0.0
    for batch in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(network(batch), batch.digits)
        # Every rank has this loss, and backward differentiates the sum over the ranks.
        weft.backward(loss / network.comm.size)
        for parameter in network.classifier.parameters():  # the GRU sums its gradients itself
            parameter.grad = network.comm.all_reduce(parameter.grad)
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
    return total / len(batches)


@torch.no_grad()
def accuracy(network: Network, test: Recordings) -> float:
    """Returns the fraction of correctly recognised recordings."""
    return (network(test).argmax(1) == test.digits).float().mean().item()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = Path(os.environ.get("WEFT_DATA", ".")) / "FSDD" / "recordings.tar.gz"
    parser.add_argument(
        "recordings",
        type=Path,
        nargs="?",
        default=known,
        help="folder or archive with the recordings (default: FSDD/recordings.tar.gz in the folder $WEFT_DATA)",
    )
    parser.add_argument(
        "--solver", default="auto", help="solver of the recurrence, or all to compare them (default auto)"
    )
    parser.add_argument("--hidden", type=int, default=64, help="size of the hidden state (default 64)")
    parser.add_argument("--bands", type=int, default=40, help="mel bands (default 40)")
    parser.add_argument("--frames", type=int, default=100, help="maximum frames of a recording (default 100)")
    parser.add_argument("--epochs", type=int, default=10, help="number of passes over the recordings (default 10)")
    parser.add_argument("--batch", type=int, default=50, help="recordings per mini-batch (default 50)")
    parser.add_argument("--rate", type=float, default=3e-3, help="learning rate of Adam (default 0.003)")
    parser.add_argument("--double", action="store_true", help="compute in float64, so that solvers differ less")
    parser.add_argument("--seed", type=int, default=1, help="seed of weights and batches (default 1)")
    options = parser.parse_args()
    if not options.recordings.exists():
        sys.exit(
            f"spoken_digits: {options.recordings} does not exist; download the Free Spoken Digit Dataset and pass its "
            "folder `recordings`"
        )
    return options


def run(comm: weft.Communicator, options: argparse.Namespace, training: Recordings, test: Recordings) -> float:
    """Trains a network with one solver. Returns the test accuracy after the last epoch."""
    torch.manual_seed(options.seed)  # the same weights on all ranks
    network = Network(comm, options.bands, options)
    optimizer = torch.optim.Adam(network.parameters(), lr=options.rate)
    recognised = accuracy(network, test)
    for epoch in range(options.epochs):
        start = time.perf_counter()
        batches = data.shuffled_batches(len(training.digits), epoch, size=options.batch, seed=options.seed)
        loss = train(network, optimizer, [select(training, batch) for batch in batches])
        seconds = time.perf_counter() - start
        recognised = accuracy(network, test)
        if comm.rank == 0:
            print(
                f"epoch {epoch + 1}: loss {loss:.4f}, test accuracy {recognised:.3f}, {seconds:.1f} s, "
                f"solver {network.rnn.choice}",
                flush=True,
            )
    return recognised


def main() -> None:
    options = parse()
    comm = weft.world()
    training, test = read_recordings(options.recordings, options.bands, options.frames)
    if options.double:
        torch.set_default_dtype(torch.float64)
        training, test = (part._replace(features=part.features.double()) for part in (training, test))
    if comm.rank == 0:
        print(
            f"{len(training.digits)} recordings for training, {len(test.digits)} for testing, {comm.size} ranks",
            flush=True,
        )
    solvers = SOLVERS if options.solver == "all" else [options.solver]
    for options.solver in solvers:
        recognised = run(comm, options, training, test)
        if comm.rank == 0 and len(solvers) > 1:
            print(f"{options.solver} on {comm.size} ranks: test accuracy {recognised:.3f}", flush=True)


if __name__ == "__main__":
    main()
