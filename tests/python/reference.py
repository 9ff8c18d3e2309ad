"""Reference implementation of the operations in one process: seeds give the inputs, plain torch the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import weft

Shape = tuple[int, ...]
DIFFERENTIABLE = ("sum", "mean", "prod", "min", "max")


def values(shape: Shape, dtype: torch.dtype, *seeds: int) -> Tensor:
    """Returns random values that depend only on the seeds; small integers for integer types."""
    generator = torch.Generator().manual_seed(hash(seeds) % 2**31)
    if dtype.is_floating_point or dtype.is_complex:
        widest = torch.complex128 if dtype.is_complex else torch.float64
        return torch.randn(shape, dtype=widest, generator=generator).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 5, shape, generator=generator).to(dtype)


def reduced(xs: list[Tensor], op: str) -> Tensor:
    stacked = torch.stack(xs)
    if op == "sum":
        return stacked.any(0) if stacked.dtype == torch.bool else stacked.sum(0, dtype=stacked.dtype)
    if op == "mean":
        return stacked.mean(0)
    if op == "prod":
        return stacked.all(0) if stacked.dtype == torch.bool else stacked.prod(0, dtype=stacked.dtype)
    return stacked.amin(0) if op == "min" else stacked.amax(0)


def balanced(total: int, ranks: int) -> list[int]:
    return [total // ranks + (1 if i < total % ranks else 0) for i in range(ranks)]


@dataclass(frozen=True)
class Case:
    """A call of an operation: the shape of each rank's input, the call, and all ranks' results."""

    name: str
    shape: Callable[[int, int], Shape]
    run: Callable[[weft.Communicator, Tensor], Tensor]
    expect: Callable[[list[Tensor]], list[Tensor]]
    linear: bool = True
    ordered: bool = False  # needs ordered numbers or a division: not for complex or integer types

    def __str__(self) -> str:
        return self.name

    def inputs(self, size: int, dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
        return [values(self.shape(rank, size), dtype, seed, rank) for rank in range(size)]


def _same(rank: int, size: int) -> Shape:
    return (3, 2)


def _reductions() -> list[Case]:
    cases = []
    for op in DIFFERENTIABLE:
        linear, ordered = op in ("sum", "mean"), op in ("mean", "min", "max")

        def everywhere(xs: list[Tensor], op: str = op) -> list[Tensor]:
            return [reduced(xs, op) for _ in xs]

        def on_last(xs: list[Tensor], op: str = op) -> list[Tensor]:
            result = reduced(xs, op)
            return [result if i == len(xs) - 1 else torch.zeros_like(result) for i in range(len(xs))]

        def pieces(xs: list[Tensor], op: str = op) -> list[Tensor]:
            return list(reduced(xs, op).split(balanced(2, len(xs)), 1))

        def prefixes(xs: list[Tensor], op: str = op) -> list[Tensor]:
            return [reduced(xs[: i + 1], op) for i in range(len(xs))]

        def suffixes(xs: list[Tensor], op: str = op) -> list[Tensor]:
            return [reduced(xs[i:], op) for i in range(len(xs))]

        cases += [
            Case(f"all_reduce-{op}", _same, lambda c, x, op=op: c.all_reduce(x, op), everywhere, linear, ordered),
            Case(f"reduce-{op}", _same, lambda c, x, op=op: c.reduce(x, op, c.size - 1), on_last, linear, ordered),
            Case(
                f"reduce_scatter-{op}", _same, lambda c, x, op=op: c.reduce_scatter(x, op, -1), pieces, linear, ordered
            ),
            Case(f"scan-{op}", _same, lambda c, x, op=op: c.scan(x, op), prefixes, linear, ordered),
            Case(f"scan-{op}-reverse", _same, lambda c, x, op=op: c.scan(x, op, True), suffixes, linear, ordered),
        ]
    return cases


def _uneven(rank: int, size: int) -> Shape:
    return (2, (rank + 1) % 3, 2)  # 1, 2, 0, 1: some rank has nothing


def _split(rank: int, size: int) -> Shape:
    return (rank + 2 * size, 2)


def _to(rank: int, size: int) -> list[int]:
    """Returns the number of rows that a rank sends to each rank; the last rank gets the remaining rows."""
    sizes = [(rank + i) % 3 for i in range(size - 1)]
    return [*sizes, rank + 2 * size - sum(sizes)]


def _exchanged(xs: list[Tensor]) -> list[Tensor]:
    sent = [x.split(_to(rank, len(xs))) for rank, x in enumerate(xs)]
    return [torch.cat([pieces[i] for pieces in sent]) for i in range(len(xs))]


def _transposed(xs: list[Tensor]) -> list[Tensor]:
    sent = [x.split(balanced(x.shape[0], len(xs))) for x in xs]
    return [torch.cat([pieces[i] for pieces in sent], -1) for i in range(len(xs))]


def _gathers() -> list[Case]:
    def gathered(xs: list[Tensor]) -> list[Tensor]:
        return [torch.cat(xs, 1) for _ in xs]

    def on_last(xs: list[Tensor]) -> list[Tensor]:
        return [torch.cat(xs, 1)[:, : None if i == len(xs) - 1 else 0] for i in range(len(xs))]

    def scattered(xs: list[Tensor]) -> list[Tensor]:
        return list(xs[-1].split(_to(len(xs) - 1, len(xs))))

    def scatter(c: weft.Communicator, x: Tensor) -> Tensor:
        return c.scatter(x, -2, c.size - 1, _to(c.rank, c.size) if c.rank == c.size - 1 else None)

    return [
        Case("all_gather", _uneven, lambda c, x: c.all_gather(x, 1), gathered),
        Case("all_gather-negative", _uneven, lambda c, x: c.all_gather(x, -2), gathered),
        Case("all_gather-0d", lambda r, n: (), lambda c, x: c.all_gather(x), lambda xs: [torch.stack(xs)] * len(xs)),
        Case("gather", _uneven, lambda c, x: c.gather(x, 1, c.size - 1), on_last),
        Case("scatter", _split, scatter, scattered),
        Case("all_to_all", _split, lambda c, x: c.all_to_all(x, split_sizes=_to(c.rank, c.size)), _exchanged),
        Case("all_to_all-dims", lambda r, n: (2 * n + 1, r % 3), lambda c, x: c.all_to_all(x, 0, -1), _transposed),
        Case("iall_gather", _uneven, lambda c, x: c.iall_gather(x, 1).wait(), gathered),
    ]


def _rest() -> list[Case]:
    def shifted(xs: list[Tensor]) -> list[Tensor]:
        return [xs[i - 1] for i in range(len(xs))]

    def before(xs: list[Tensor]) -> list[Tensor]:
        return [reduced(xs[:i], "sum") if i else torch.zeros_like(xs[0]) for i in range(len(xs))]

    def last(xs: list[Tensor]) -> list[Tensor]:
        return [xs[-1] for _ in xs]

    def everywhere(xs: list[Tensor]) -> list[Tensor]:
        return [reduced(xs, "sum") for _ in xs]

    def ring(c: weft.Communicator, x: Tensor) -> Tensor:
        return c.sendrecv(x, (c.rank + 1) % c.size, (c.rank - 1) % c.size)

    def around(c: weft.Communicator, x: Tensor) -> Tensor:
        sending = c.isend(x, (c.rank + 1) % c.size, 7)
        received = c.recv(source=(c.rank - 1) % c.size, tag=7)
        sending.wait()
        return received

    return [
        Case("broadcast", _same, lambda c, x: c.broadcast(x, c.size - 1), last),
        Case("ibroadcast", _same, lambda c, x: c.ibroadcast(x, c.size - 1).wait(), last),
        Case("iall_reduce", _same, lambda c, x: c.iall_reduce(x).wait(), everywhere),
        Case("exscan-sum", _same, lambda c, x: c.exscan(x), before),
        Case("sendrecv", lambda r, n: (r % 3, 2), ring, shifted),
        Case("isend-recv", lambda r, n: (r % 3, 2), around, shifted),
    ]


CASES = [*_reductions(), *_gathers(), *_rest()]


def inner(x: Tensor, y: Tensor) -> Tensor:
    """Returns the real inner product."""
    product = x.conj() * y
    return (product.real if product.is_complex() else product).sum()


def expected_gradients(case: Case, xs: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
    """Returns the gradients of the sum over all ranks of <weight, result>, computed by torch."""
    leaves = [x.detach().clone().requires_grad_() for x in xs]
    loss = sum((inner(w, y) for w, y in zip(weights, case.expect(leaves), strict=True)), torch.zeros(()))
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True) if loss.requires_grad else [None] * len(leaves)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(xs, gradients, strict=True)]
