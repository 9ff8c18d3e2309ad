"""ResNet-18 and a U-Net of full width, split over 4 ranks, train like one process. `make test-spatial` runs this test.

In float64: what differs is then the order of additions only, not what twenty steps make of rounding in float32.
"""

from __future__ import annotations

import copy

import pytest
import torch
from spatial import networks
from spatial.parallelize_test import squarest, trained

import weft
from weft import spatial

STEPS = 20
RESNET_18 = 11_689_512  # published number of parameters
CASES = {
    "resnet-18": (lambda: networks.ResNet(64, 1000), (2, 3, 66, 70), 1000, False),
    "unet": (lambda: networks.UNet(32, 3), (2, 3, 52, 44), 3, True),
}


@pytest.mark.parametrize("name", CASES)
def test_twenty_steps_match_one_process(name: str, comm: weft.Communicator) -> None:
    make, shape, classes, dense = CASES[name]
    torch.manual_seed(3)
    net = make().double()
    assert name != "resnet-18" or sum(p.numel() for p in net.parameters()) == RESNET_18
    split = spatial.parallelize(copy.deepcopy(net), spatial.RankGrid(*squarest(comm.size)), shape)
    expected = trained(net, STEPS, shape, classes, dense)
    actual = trained(split, STEPS, shape, classes, dense)
    worst = max(abs(a - e) / abs(e) for a, e in zip(actual, expected, strict=True))
    print(f"{name}: losses {expected[0]:.3f} to {expected[-1]:.3f}, off by {worst:.1e} at most")
    assert actual == pytest.approx(expected, rel=1e-8, abs=1e-10)
    state = split.whole_state_dict()
    for key, value in net.state_dict().items():
        assert torch.allclose(state[key].to(value.dtype), value, rtol=1e-6, atol=1e-8), key
