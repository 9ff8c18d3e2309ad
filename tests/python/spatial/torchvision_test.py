"""torchvision's networks on tiles give the results and gradients of one process. `make test-spatial` runs this test.

torchvision's compiled operators need libraries of CUDA, and these networks do not use them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from spatial.one_process import differences
from spatial.parallelize_test import squarest
from torch import nn

import weft
from weft.spatial import RankGrid

# Fake kernels of these operators are registered when torchvision is imported, so they must exist.
_OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
for _name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, _name):
        _OPERATORS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
torchvision = pytest.importorskip("torchvision")
models: Any = torchvision.models


def narrow_vgg() -> nn.Module:
    """Returns vgg11_bn with 64 hidden units, because 4,096 need gigabytes."""
    net = models.vgg11_bn(num_classes=10)
    net.classifier = nn.Sequential(nn.Linear(512 * 7 * 7, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 10))
    return net


# In training, batch norms of few values amplify rounding from layer to layer, in one process too.
LARGEST = {"evaluation": 1e-13, "training": 1e-11}
SEGMENTATION = {"weights": None, "weights_backbone": None, "num_classes": 5}
CASES: dict[str, tuple[Callable[[], nn.Module], int]] = {
    **{
        name: (lambda name=name: getattr(models, name)(num_classes=10), 64)
        for name in """resnet18 resnet50 mobilenet_v2 mobilenet_v3_small densenet121 squeezenet1_1 mnasnet0_5
        regnet_y_400mf efficientnet_b0 shufflenet_v2_x1_0 convnext_tiny swin_t swin_v2_t""".split()
    },
    "vgg11_bn (64 hidden units)": (narrow_vgg, 64),
    "googlenet": (lambda: models.googlenet(num_classes=10, aux_logits=False, init_weights=True), 64),
    "fcn_resnet50": (lambda: models.segmentation.fcn_resnet50(aux_loss=True, **SEGMENTATION), 64),
    "deeplabv3_resnet50": (lambda: models.segmentation.deeplabv3_resnet50(aux_loss=True, **SEGMENTATION), 64),
    "lraspp_mobilenet_v3_large": (lambda: models.segmentation.lraspp_mobilenet_v3_large(**SEGMENTATION), 64),
    "vit (4 layers of width 192)": (
        lambda: models.VisionTransformer(64, 8, num_layers=4, num_heads=3, hidden_dim=192, mlp_dim=768, num_classes=10),
        64,
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", LARGEST)
def test_network_equals_one_process(name: str, mode: str, comm: weft.Communicator) -> None:
    make, size = CASES[name]
    torch.manual_seed(3)
    net = make().double().train(mode == "training")
    for module in net.modules():
        if isinstance(module, nn.Dropout | torchvision.ops.StochasticDepth):
            module.p = 0.0
    found, _ = differences(net, RankGrid(*squarest(comm.size)), (3, 3, size, size))
    if comm.rank == 0:
        print(f"\n| {name} | {mode} | {comm.size} | {found.outputs:.1e} | {found.gradients:.1e} |", flush=True)
    assert max(found) < LARGEST[mode], found
    del net
    gc.collect()
