"""Networks in plain torch, without code for tiles: a residual network, a U-Net, and one that flattens."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """ResNet's basic block."""

    def __init__(self, channels: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += identity
        return self.relu(y)


class ResNet(nn.Module):
    """A ResNet-18 with fewer channels."""

    def __init__(self, width: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        stages, channels = [], width
        for stage in range(4):
            outputs = width * 2**stage
            stages += [Block(channels, outputs, 1 if stage == 0 else 2), Block(outputs, outputs, 1)]
            channels = outputs
        self.stages = nn.Sequential(*stages)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.stages(x))
        return self.fc(torch.flatten(x, 1))


def double_conv(channels: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, outputs, 3, padding=1),
        nn.GroupNorm(2, outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.LeakyReLU(0.1),
    )


class UNet(nn.Module):
    def __init__(self, width: int = 4, classes: int = 3) -> None:
        super().__init__()
        self.down1, self.down2 = double_conv(3, width), double_conv(width, 2 * width)
        self.bottom = double_conv(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.merge2 = double_conv(4 * width, 2 * width)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.merge1 = double_conv(3 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        c = self.merge2(torch.cat([self.up2(c), b], 1))
        c = self.merge1(torch.cat([self.up1(c), a], dim=1))
        return self.head(c)


class Flattens(nn.Module):
    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 5), nn.Tanh(), nn.AvgPool2d(2))
        self.fc1 = nn.Linear(4 * ((height - 4) // 2) * ((width - 4) // 2), 7)
        self.fc2 = nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = x.view(x.size(0), -1)
        return self.fc2(F.relu(self.fc1(F.relu(x))))
