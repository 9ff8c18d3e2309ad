"""DDP through a switch: MNIST compared with the MPI backend, identical parameters on all ranks, detection of Inf."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from sml import default_group
from sml.switches import Switch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from weft.tools.sml_demo import chosen, network

import weft
from weft import data

STEPS, BATCH, RATE = 40, 48, 0.05


@pytest.fixture(scope="module", autouse=True)
def switch(request: pytest.FixtureRequest) -> Iterator[Switch | None]:
    yield from default_group.lifetime(request)


def train(group: dist.ProcessGroup, rank: int, size: int) -> tuple[list[float], nn.Module]:
    """Returns the losses over the whole batch, averaged without the tested backend, and the model."""
    model = DistributedDataParallel(network(), process_group=group, bucket_cap_mb=0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    images = chosen(data.mnist().train, 2000)
    losses = []
    for batch in islice(data.shuffled_batches(len(images.labels), 0, size=BATCH, seed=3), STEPS):
        mine = images.select(data.shard(batch, size, rank))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data.unit_floats(mine.images)), mine.labels)
        loss.backward()
        optimizer.step()
        losses.append(weft.world().all_reduce(loss.detach(), "mean").item())
    return losses, model.module


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_mnist_matches_the_mpi_backend(rank: int, size: int) -> None:
    world = dist.group.WORLD
    assert world is not None
    before = weft.sml.statistics().get("switch.all_reduce", 0)
    ours, model = train(world, rank, size)
    assert weft.sml.statistics()["switch.all_reduce"] - before >= STEPS  # not by the fallback
    theirs, reference = train(dist.new_group(backend="weft"), rank, size)
    # A gradient is within n/2 quanta (2^-30 of its block's largest, times n) of the exact mean, MPI's within roundings
    # of 2^-24: the two paths differ by less than MPI's own rounding, and over these steps no more than it grows.
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(flat(model), flat(reference), rtol=1e-3, atol=1e-5)
    assert ours[-1] < 0.9 * ours[0]  # 40 small batches reduce the loss a little
    bits = flat(model).view(torch.int32).long()
    comm = weft.world()
    assert torch.equal(comm.all_reduce(bits, "max"), comm.all_reduce(bits, "min"))


def sent_as(dtype: torch.dtype) -> Callable[[object, dist.GradBucket], torch.futures.Future[Tensor]]:
    """DDP hook that sends gradients in this type. torch's own hook for bfloat16 supports only GPUs."""

    def hook(state, bucket):  # DDP rejects string annotations
        whole = bucket.buffer()
        work = dist.all_reduce(whole.to(dtype), op=dist.ReduceOp.AVG, async_op=True)
        return work.get_future().then(lambda done: whole.copy_(done.value()[0]))

    return hook


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_gradient_scaler_sees_inf(dtype: torch.dtype, rank: int, size: int) -> None:
    """One rank has Inf in its gradients. All ranks must skip the step, or their parameters would diverge."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(300, 40))
    model.register_comm_hook(None, sent_as(dtype))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    before = flat(model).clone()
    loss = model(torch.ones(2, 300)).sum()
    if rank == size - 1:
        loss = loss * float("inf")
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(flat(model), before)
    assert scaler.get_scale() < 4.0


def test_buckets_are_summed_during_backward(rank: int, size: int) -> None:
    """The sum of the first bucket ends before the last gradients are computed."""
    layers = [nn.Linear(512, 512) for _ in range(8)]
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=1)
    events: list[str] = []

    def hook(state, bucket):  # DDP rejects string annotations
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        number = bucket.index()

        def ended(done: torch.futures.Future[list[Tensor]]) -> Tensor:
            events.append(f"bucket {number}")
            return done.value()[0].div_(size)

        return future.then(ended)

    model.register_comm_hook(None, hook)
    layers[0].weight.register_hook(lambda gradient: events.append("last gradient"))
    x = torch.randn(512, 512)
    steps = []
    for _ in range(5):  # DDP determines the bucket order in the first steps
        weft.world().barrier()
        events.clear()
        model(x).square().mean().backward()
        steps.append(list(events))
    early = max(step.index("last gradient") for step in steps)
    # A rank that is ahead computes all gradients before the others join, and on a busy machine the first sum may end
    # last. If buckets waited for all gradients, no step would have an early one.
    assert weft.world().all_reduce(torch.tensor(early), "max").item() >= 1, steps
