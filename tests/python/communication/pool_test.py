"""Pooled tensors: identical results, no page faults, and releasable memory."""

import os
import resource

import pytest
import torch
from torch import nn

import weft

FLOATS = 1 << 18


@pytest.fixture(autouse=True)
def without_pool():
    yield
    weft.memory.stop()


def step(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    net.zero_grad()
    loss = net(x).square().sum()
    loss.backward()
    return torch.cat([loss.detach()[None], *(p.grad.flatten() for p in net.parameters())])


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1))


def test_training_is_identical_and_causes_no_page_faults() -> None:
    net, x = network(), torch.randn(8, 3, 64, 64)
    expected = step(net, x)
    weft.memory.pool()
    for _ in range(3):
        assert torch.equal(step(net, x), expected)
    before, faults = weft.memory.statistics(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        step(net, x)
    after = weft.memory.statistics()
    assert after.misses == before.misses
    assert after.hits > before.hits
    pages = x.numel() * 4 * 16 // 3 // resource.getpagesize()  # size of one layer's output
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults < pages


def test_with_statement_stops_pooling() -> None:
    with weft.memory.pool():
        x = torch.ones(FLOATS)
        assert weft.memory.statistics().live_bytes >= FLOATS * 4
    assert x.sum() == FLOATS
    live = weft.memory.statistics().live_bytes
    y = torch.ones(FLOATS)
    assert weft.memory.statistics().live_bytes == live, "pooling is off"
    del x, y
    assert weft.memory.statistics().live_bytes <= live - FLOATS * 4


def test_nested_with_statement_keeps_pooling() -> None:
    weft.memory.pool()
    with weft.memory.pool():
        pass
    live = weft.memory.statistics().live_bytes
    x = torch.ones(FLOATS)
    assert weft.memory.statistics().live_bytes > live
    del x


def test_trim_releases_memory() -> None:
    weft.memory.pool()
    x = torch.ones(64 * FLOATS)
    resident = resident_bytes()
    del x
    assert weft.memory.statistics().cached_bytes >= 64 * FLOATS * 4
    weft.memory.trim()
    assert weft.memory.statistics().cached_bytes == 0
    assert resident_bytes() <= resident - 60 * FLOATS * 4


def test_limits_are_respected() -> None:
    weft.memory.trim()
    weft.memory.pool(of_peak=1, at_least=0)
    for size in range(1, 20):
        x = torch.empty(size * FLOATS)
        del x
        now = weft.memory.statistics()
        assert now.live_bytes + now.cached_bytes <= now.peak_bytes
    assert weft.memory.statistics().evictions > 0


def test_invalid_limits_are_rejected() -> None:
    with pytest.raises(ValueError, match="limits"):
        weft.memory.pool(of_peak=0.5)


def test_numpy_and_shared_memory_work() -> None:
    weft.memory.pool()
    x = torch.arange(FLOATS, dtype=torch.float64)
    array = x.numpy()
    y = x.clone().share_memory_()
    del x
    torch.ones(FLOATS, dtype=torch.float64)  # overwrites the array unless it owns its memory
    assert array[-1] == FLOATS - 1
    assert y[-1] == FLOATS - 1


def test_pool_works_in_a_forked_child() -> None:
    torch.set_num_threads(1)  # OpenMP threads do not exist in a child process
    weft.memory.pool()
    x = torch.ones(FLOATS)
    child = os.fork()
    if child == 0:
        y = x + torch.ones(FLOATS)
        del x
        os._exit(0 if float(y[-1]) == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert float(x[-1]) == 1


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
