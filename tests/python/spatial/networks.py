"""Networks in plain torch, without code for tiles: small forms of common networks and their operations."""

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


class Shuffles(nn.Module):
    """ShuffleNet's operations: halves of the channels, and a shuffle through view and transpose."""

    def __init__(self, width: int = 8, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.branch = nn.Sequential(
            *(nn.Conv2d(width // 2, width // 2, 1), nn.BatchNorm2d(width // 2), nn.ReLU()),
            nn.Conv2d(width // 2, width // 2, 3, padding=1, groups=width // 2),
        )
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        kept, changed = x.chunk(2, dim=1)
        x = torch.cat((kept, self.branch(changed)), dim=1)
        batch, channels, height, width = x.size()
        x = x.view(batch, 2, channels // 2, height, width)
        x = torch.transpose(x, 1, 2).contiguous()
        x = x.view(batch, channels, height, width)
        return self.fc(x.mean([2, 3]))


class ChannelsLast(nn.Module):
    """ConvNeXt's block: a layer norm and a perceptron on the channels of each cell, which are the last dimension."""

    def __init__(self, width: int = 6, classes: int = 5) -> None:
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(3, width, 2, 2), nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.wide, self.narrow = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )
        self.scale = nn.Parameter(torch.full((width, 1, 1), 0.5))
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.narrow(F.gelu(self.wide(y))) + y
        x = x + self.scale * torch.permute(y, (0, 3, 1, 2))
        x = F.layer_norm(x.movedim(1, -1), [x.shape[1]]).movedim(-1, 1)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Segments(nn.Module):
    """DeepLab's head: dilated convolutions beside a pooled branch, and interpolation to the size of the input."""

    def __init__(self, width: int = 6, classes: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.rates = nn.ModuleList(nn.Conv2d(width, width, 3, padding=rate, dilation=rate) for rate in (1, 3, 6))
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width, 1), nn.BatchNorm2d(width))
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width, 1), nn.Sigmoid())
        self.head, self.second = nn.Conv2d(4 * width, classes, 1), nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        size = x.shape[-2:]
        x = self.stem(x)
        pooled = F.interpolate(self.pooled(x), size=x.shape[-2:], mode="bilinear", align_corners=False)
        y = self.head(torch.cat([*(rate(x) for rate in self.rates), pooled], dim=1))
        z = self.second(x * self.gate(x))
        return {
            name: F.interpolate(v, size, mode="bilinear", align_corners=False) for name, v in (("out", y), ("z", z))
        }


class VisionTransformer(nn.Module):
    """Patches as a sequence with a class token, attention and a perceptron."""

    def __init__(self, patches: int, width: int = 8, classes: int = 5) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.token, self.places = (
            nn.Parameter(torch.randn(1, 1, width)),
            nn.Parameter(torch.randn(1, patches + 1, width)),
        )
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.0), nn.Linear(2 * width, width))
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        y = self.norm1(x)
        y, _ = self.attention(y, y, y, need_weights=False)
        x = x + y
        x = x + self.mlp(self.norm2(x))
        return self.fc(x[:, 0])


class WindowAttention(nn.Module):
    """Swin's operations: shifted windows, channels last, and merged patches."""

    def __init__(self, width: int = 8, window: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.window = window
        self.patch = nn.Conv2d(3, width, 2, 2)
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.merge = nn.Linear(4 * width, 2 * width, bias=False)
        self.fc = nn.Linear(2 * width, classes)

    def attend(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        n = self.window
        rows, columns = -(-height // n), -(-width // n)
        x = F.pad(x, (0, 0, 0, columns * n - width, 0, rows * n - height))
        x = torch.roll(x, shifts=(-1, -1), dims=(1, 2))
        x = x.view(batch, rows, n, columns, n, channels).permute(0, 1, 3, 2, 4, 5).reshape(-1, n * n, channels)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        x = self.out(torch.softmax(q @ k.transpose(-2, -1), dim=-1) @ v)
        x = x.view(batch, rows, columns, n, n, channels).permute(0, 1, 3, 2, 4, 5)
        x = x.reshape(batch, rows * n, columns * n, channels)
        return torch.roll(x, shifts=(1, 1), dims=(1, 2))[:, :height, :width, :].contiguous()

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).permute(0, 2, 3, 1)
        x = x + self.attend(self.norm(x))
        x = x + self.mlp(x)
        x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        parts = [x[..., i::2, j::2, :] for j in (0, 1) for i in (0, 1)]
        x = self.merge(torch.cat(parts, -1)).permute(0, 3, 1, 2)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class SignalAttention(nn.Module):
    """Self-attention over a signal; with one tiled dimension, every rank keeps the queries of its part."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.stem, self.qkv, self.out = (
            nn.Conv1d(3, width, 3, padding=1),
            nn.Linear(width, 3 * width),
            nn.Linear(width, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).transpose(1, 2)
        q, k, v = self.qkv(x).split(x.shape[2], dim=2)
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.out(x + y).permute(0, 2, 1)
