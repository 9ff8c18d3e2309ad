"""Training with torch's parallel modules on the backend gives the losses of gloo and of one process in every step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from process_group.default_group import BACKEND, lifetime, same
from reference import reduced
from torch import Tensor, nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

import weft

STEPS = 6
WORDS, WIDTH, HEADS, LENGTH, BATCH = 13, 16, 4, 5, 8


@pytest.fixture(scope="module", autouse=True)
def group(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from lifetime(request)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention_norm(x)
        # -1, because a rank of a tensor-parallel group has only some of the heads.
        heads = [
            part(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for part in (self.query, self.key, self.value)
        ]
        x = x + self.output(F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.norm(x))))


class Transformer(nn.Module):
    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(WORDS, WIDTH, sparse=sparse)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embedding(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Returns counting sequences, which the network can learn."""
    first = torch.randint(WORDS, (BATCH, 1), generator=torch.Generator().manual_seed(step))
    words = (first + torch.arange(LENGTH + 1)) % WORDS
    return words[:, :-1], words[:, 1:]


def train(model: nn.Module, shard: slice, momentum: float = 0.9) -> list[float]:
    """Returns losses over the whole batch; their mean over ranks does not use the backend under test."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    losses = []
    for step in range(STEPS):
        words, following = (x[shard] for x in batch(step))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(words).flatten(0, 1), following.flatten())
        loss.backward()
        optimizer.step()
        losses.append(weft.world().all_reduce(loss.detach(), "mean").item())
    return losses


Wrap = Callable[[dist.ProcessGroup], nn.Module]


def data_parallel(group: dist.ProcessGroup) -> nn.Module:
    return DistributedDataParallel(Transformer(), process_group=group, bucket_cap_mb=0.01)


def data_parallel_of_sparse_gradients(group: dist.ProcessGroup) -> nn.Module:
    return DistributedDataParallel(Transformer(sparse=True), process_group=group)


def fully_sharded(group: dist.ProcessGroup, **options: object) -> nn.Module:
    model, mesh = Transformer(), DeviceMesh.from_group(group, "cpu")
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def fully_sharded_in_bfloat16(group: dist.ProcessGroup) -> nn.Module:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    return fully_sharded(group, mp_policy=policy)


def tensor_parallel(group: dist.ProcessGroup) -> nn.Module:
    model, mesh = Transformer(), DeviceMesh.from_group(group, "cpu")
    plan = {name: ColwiseParallel() for name in ("query", "key", "value", "widen")}
    plan |= {name: RowwiseParallel() for name in ("output", "narrow")}
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    return model


def check_losses(wrap: Wrap, shard: slice, **tolerance: float) -> list[float]:
    # SGD does not support momentum for sparse gradients.
    momentum = 0.0 if wrap is data_parallel_of_sparse_gradients else 0.9
    world = dist.group.WORLD
    assert world is not None
    ours = train(wrap(world), shard, momentum)
    gloo = train(wrap(dist.new_group(backend="gloo")), shard, momentum)
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(gloo), **tolerance)
    assert ours[-1] < 0.9 * ours[0]
    return ours


@pytest.mark.parametrize("wrap", [data_parallel, data_parallel_of_sparse_gradients, fully_sharded])
def test_data_parallel_training_matches_one_process(wrap: Wrap, rank: int, size: int) -> None:
    if BATCH % size:
        pytest.skip("the mean over unequal shards differs")
    part = BATCH // size
    ours = check_losses(wrap, slice(rank * part, (rank + 1) * part))
    alone = train(Transformer(), slice(None), 0.0 if wrap is data_parallel_of_sparse_gradients else 0.9)
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(alone), rtol=1e-5, atol=0)


def test_tensor_parallel_training_matches_one_process(rank: int, size: int) -> None:
    if HEADS % size:
        pytest.skip("needs a number of heads that the ranks divide")
    ours = check_losses(tensor_parallel, slice(None))
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(train(Transformer(), slice(None))), rtol=1e-5, atol=0)


def test_sharded_in_bfloat16(rank: int, size: int) -> None:
    if BATCH % size:
        pytest.skip("the mean over unequal shards differs")
    part = BATCH // size
    # Sums of gradients round to 8 bits, in an order that depends on the backend.
    check_losses(fully_sharded_in_bfloat16, slice(rank * part, (rank + 1) * part), rtol=2e-2, atol=0)


def test_data_and_tensor_parallel_training_matches_one_process(rank: int, size: int) -> None:
    """Both on one mesh of init_device_mesh, compared with the whole batch on one process."""
    if size != 4:
        pytest.skip("needs 4 ranks")
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = Transformer()
    plan = {name: ColwiseParallel() for name in ("query", "key", "value", "widen")}
    plan |= {name: RowwiseParallel() for name in ("output", "narrow")}
    for block in model.blocks:
        parallelize_module(block, mesh["tensor"], plan)
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    part = BATCH // 2
    ours = train(model, slice(rank // 2 * part, (rank // 2 + 1) * part))
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(train(Transformer(), slice(None))), rtol=1e-5, atol=0)


def test_functional_collectives_return_the_right_values(rank: int, size: int) -> None:
    xs = [torch.arange(2.0 * size) + 10 * i for i in range(size)]
    total = reduced(xs, "sum")
    world = dist.group.WORLD
    same(functional.all_reduce(xs[rank], "sum", world).clone(), total)
    same(functional.all_gather_tensor(xs[rank], 0, world).clone(), torch.cat(xs))
    same(functional.reduce_scatter_tensor(xs[rank], "sum", 0, world).clone(), total[2 * rank : 2 * rank + 2])
    same(functional.all_to_all_single(xs[rank], None, None, world).clone(), torch.cat([x.split(2)[rank] for x in xs]))
    same(functional.broadcast(xs[rank], size - 1, world).clone(), xs[-1])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_compiled_collectives_cause_no_graph_break(rank: int, size: int) -> None:
    """No graph break: the collectives are in the graph."""
    world = dist.group.WORLD

    def run(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        summed = functional.all_reduce(x * 2, "sum", world)
        gathered = functional.all_gather_tensor(x + 1, 0, world)
        piece = functional.reduce_scatter_tensor(gathered, "avg", 0, world)
        return summed - 1, gathered * 3, piece

    xs = [torch.arange(3.0) + 10 * i for i in range(size)]
    summed, gathered, piece = torch.compile(run, backend="aot_eager", fullgraph=True)(xs[rank])
    same(summed, reduced(xs, "sum") * 2 - 1)
    same(gathered, (torch.cat(xs) + 1) * 3)
    torch.testing.assert_close(piece, xs[rank] + 1)


LAYERS, FEATURES, ROWS = 8, 512, 512


def deep_model() -> DistributedDataParallel:
    torch.manual_seed(0)
    layers = [nn.Linear(FEATURES, FEATURES) for _ in range(LAYERS)]
    # One bucket per layer: gradients of the last layer are sent while the others are computed.
    return DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=FEATURES * FEATURES * 4 / 2**20)


def spans(trace: Path, wanted: Callable[[str], bool]) -> list[tuple[float, float]]:
    """Returns start and end times, sorted by start."""
    events = json.loads(trace.read_text())["traceEvents"]
    return sorted(
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if "dur" in event and wanted(event.get("name", ""))
    )


def test_buckets_are_sent_while_gradients_are_computed(rank: int, size: int, tmp_path: Path) -> None:
    if size == 1:
        pytest.skip("needs several ranks")
    model, x = deep_model(), torch.randn(ROWS, FEATURES)
    for _ in range(2):  # the first steps determine the order of the buckets
        model(x).square().mean().backward()
    loss = model(x).square().mean()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        loss.backward()
    trace = tmp_path / "backward.json"
    profiler.export_chrome_trace(str(trace))
    reductions = spans(trace, lambda name: name == f"{BACKEND}:all_reduce")
    layers = spans(trace, lambda name: name.startswith("autograd::engine::evaluate_function: AddmmBackward"))
    assert len(reductions) >= LAYERS // 2 and len(layers) == LAYERS
    # The transfer ends, not only starts, before the last gradients are computed.
    during = [(begin, end) for begin, end in reductions if layers[0][0] < begin and end < layers[-1][1]]
    beside = [span for span in during if any(begin < span[1] and span[0] < end for begin, end in layers[1:])]
    # A rank that is ahead of all others has computed everything before the first of them joins.
    assert weft.world().all_reduce(torch.tensor(len(beside)), "max").item() >= 1, (reductions, layers)
