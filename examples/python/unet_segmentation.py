"""A U-Net that segments shapes in large noisy images, with each image split into tiles over the ranks.

mpirun -n 4 python unet_segmentation.py --grid 2 2 --size 256 --steps 60 --output pictures

The network is plain PyTorch; parallelize() splits it. Rank 0 writes input.png, truth.png and prediction.png.
"""

from __future__ import annotations

import argparse
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import weft

CLASSES = 3  # background, disc, rectangle
COLOURS = torch.tensor([[20, 20, 40], [230, 120, 40], [60, 160, 220]], dtype=torch.uint8)


def double_conv(channels: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for source in (channels, outputs):
        layers += [nn.Conv2d(source, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down1, self.down2 = double_conv(1, width), double_conv(width, 2 * width)
        self.bottom = double_conv(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.merge2 = double_conv(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.merge1 = double_conv(2 * width, width)
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        c = self.merge2(torch.cat([self.up2(c), b], 1))
        c = self.merge1(torch.cat([self.up1(c), a], 1))
        return self.head(c)


def pictures(seed: int, batch: int, size: int) -> tuple[Tensor, Tensor]:
    """Noisy images of discs and rectangles, and the class of each pixel. The same on every rank."""
    random = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    truth = torch.zeros(batch, size, size, dtype=torch.long)
    for image in truth:
        for _ in range(6):
            cy, cx = (torch.rand(2, generator=random) * size).tolist()
            h, w = ((0.05 + 0.1 * torch.rand(2, generator=random)) * size).tolist()
            if torch.rand(1, generator=random) < 0.5:
                image[(y - cy) ** 2 + (x - cx) ** 2 < h * h] = 1
            else:
                image[((y - cy).abs() < h) & ((x - cx).abs() < w)] = 2
    brightness = torch.tensor([0.0, 0.7, -0.7])[truth]
    return (brightness + 0.8 * torch.randn(truth.shape, generator=random)).unsqueeze(1), truth


def write_png(path: Path, pixels: Tensor) -> None:
    """Writes an RGB image of shape [height, width, 3] and type uint8."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = pixels.shape
    rows = torch.cat([torch.zeros(height, 1, dtype=torch.uint8), pixels.reshape(height, -1)], 1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(rows.flatten().tolist()))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b""))


def grey(image: Tensor) -> Tensor:
    return ((image.clamp(-2, 2) + 2) / 4 * 255).to(torch.uint8).unsqueeze(-1).expand(*image.shape, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grid", type=int, nargs=2, help="rows and columns of tiles (default: one column)")
    parser.add_argument("--size", type=int, default=128, help="height and width of the images (default 128)")
    parser.add_argument("--batch", type=int, default=2, help="images per step (default 2)")
    parser.add_argument("--steps", type=int, default=40, help="number of training steps (default 40)")
    parser.add_argument(
        "--output", type=Path, help="folder for input.png, truth.png and prediction.png (default: none)"
    )
    arguments = parser.parse_args()
    comm = weft.world()
    grid = weft.spatial.RankGrid(*(arguments.grid or (comm.size, 1)))

    torch.manual_seed(0)
    net = weft.spatial.parallelize(UNet(), grid, (arguments.batch, 1, arguments.size, arguments.size))
    net.explain()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(arguments.steps):
        images, truth = pictures(step, arguments.batch, arguments.size)
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images), truth)  # over all tiles, the same value on every rank
        weft.backward(loss)
        optimizer.step()
        if comm.rank == 0 and step % 10 == 9:
            print(f"step {step + 1}: loss {loss.item():.6f}", flush=True)

    net.eval()
    images, truth = pictures(10_000, 1, arguments.size)
    with torch.no_grad():
        prediction = net(images).gather(root=0)
    if comm.rank == 0:
        guess = prediction[0].argmax(0)
        right = (guess == truth[0]).double().mean().item()
        print(f"Python  {comm.size} ranks: final loss {loss.item():.6f}, {right:.4f} of the pixels correct", flush=True)
        if arguments.output:
            arguments.output.mkdir(parents=True, exist_ok=True)
            write_png(arguments.output / "input.png", grey(images[0, 0]))
            write_png(arguments.output / "truth.png", COLOURS[truth[0]])
            write_png(arguments.output / "prediction.png", COLOURS[guess])


if __name__ == "__main__":
    main()
