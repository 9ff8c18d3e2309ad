"""Renders the pictures of a run: filters, reconstructions, optimal stimuli and the confusion matrix."""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.tools._report.markup import Markup, element, join

__all__ = ["KINDS", "confusion_table", "kind_of", "picture", "png"]

KINDS = {
    "filters": "Filters",
    "reconstructions": "Reconstructions",
    "stimuli": "Optimal stimuli",
    "confusion": "Confusion matrix",
}
MOST_IMAGES = 400
MOST_PIXELS = 1 << 22
PNG_BEGIN = b"\x89PNG\r\n\x1a\n"


def kind_of(path: Path) -> str | None:
    """Returns the kind of a picture, from the prefix of its file name; None if unknown."""
    return next((kind for kind in KINDS if path.stem.startswith(kind)), None)


def picture(path: Path) -> Markup:
    """Returns the picture as markup. Raises ValueError or OSError if the file is not a valid picture."""
    if path.suffix == ".png":
        content = path.read_bytes()
        if not content.startswith(PNG_BEGIN):
            raise ValueError("not a PNG file")
        return element("figure", element("h3", path.stem), _image(content, path.stem, class_="picture"))
    try:
        described = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(described, dict):
        raise ValueError("not a JSON object")
    title = str(described.get("title", path.stem))
    if "counts" in described:
        return element("figure", element("h3", title), confusion_table(described))
    return element("div", element("h3", title), _images(described))


def png(pixels: Sequence[Sequence[Sequence[int]]]) -> bytes:
    """Encodes rows of pixels of 1 (grey) or 3 (colour) bytes."""
    height, width, channels = len(pixels), len(pixels[0]), len(pixels[0][0])
    rows = b"".join(b"\0" + bytes(value for pixel in row for value in pixel) for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    return PNG_BEGIN + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")


def confusion_table(described: dict[str, Any]) -> Markup:
    """Returns the confusion matrix. Rows are the true classes; the shade of a cell is its share of the row."""
    counts = described["counts"]
    if not _is_square(counts):
        raise ValueError("expected counts to be a square matrix of numbers")
    names = described.get("classes")
    classes = names if isinstance(names, list) and len(names) == len(counts) else range(len(counts))
    rows = []
    for name, row in zip(classes, counts):
        total = sum(row) or 1
        cells = [element("td", count, style=_shade(count / total)) for count in row]
        rows.append(element("tr", element("th", name), *cells))
    head = element("tr", element("th", "true \\ found"), *(element("th", name) for name in classes))
    return element("div", element("table", head, *rows, class_="confusion"), class_="scroll")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _image(content: bytes, label: str, **attributes: object) -> Markup:
    source = "data:image/png;base64," + base64.b64encode(content).decode()
    return Markup(element("img", src=source, alt=label, **attributes).removesuffix("</img>"))


def _images(described: dict[str, Any]) -> Markup:
    channels, height, width = (_size(described, name) for name in ("channels", "height", "width"))
    if channels not in (1, 3):
        raise ValueError(f"expected 1 or 3 channels, got {channels}")
    images = described.get("images")
    if not isinstance(images, list):
        raise ValueError("expected a list of images")
    if channels * height * width * min(len(images), MOST_IMAGES) > MOST_PIXELS:
        raise ValueError("too large to show")
    many = len(images) > 24  # many filters are shown small, a few reconstructions large
    zoom = max(1, round((40 if many else 96) / max(height, width)))
    shown = []
    for image in images[:MOST_IMAGES]:
        label = str(image.get("label", "")) if isinstance(image, dict) else ""
        content = png(_pixels(image, channels, height, width))
        shown.append(element("figure", _image(content, label, width=width * zoom, height=height * zoom), label))
    more = len(images) - len(shown)
    note = element("p", f"and {more} more", class_="soft") if more else Markup("")
    return join([element("div", *shown, class_="images many" if many else "images"), note])


def _size(described: dict[str, Any], name: str) -> int:
    value = described.get(name, 1 if name == "channels" else None)
    if not isinstance(value, int) or not 1 <= value <= 4096:
        raise ValueError(f"expected {name} to be from 1 to 4096, got {value!r}")
    return value


def _pixels(image: Any, channels: int, height: int, width: int) -> list[list[list[int]]]:
    """Scales brightness from the smallest to the largest value of the image; non-finite values are black."""
    values = image.get("pixels") if isinstance(image, dict) else None
    if not isinstance(values, list) or len(values) != channels * height * width:
        raise ValueError(f"expected images of {channels} x {height} x {width} pixels")
    values = [math.nan if value is None else float(value) for value in values]  # NaN is null in JSON
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, span = min(finite), max(finite) - min(finite)
    scale = 255 / span if span > 0 and math.isfinite(span) else 0.0
    grey = [round((value - low) * scale) if math.isfinite(value) else 0 for value in values]
    plane = height * width
    return [
        [[grey[channel * plane + row * width + column] for channel in range(channels)] for column in range(width)]
        for row in range(height)
    ]


def _is_square(counts: Any) -> bool:
    return (
        isinstance(counts, list)
        and all(isinstance(row, list) and len(row) == len(counts) for row in counts)
        and all(isinstance(count, (int, float)) and math.isfinite(count) for row in counts for count in row)
    )


def _shade(share: float) -> str:
    return f"background: color-mix(in srgb, var(--s0) {100 * min(max(share, 0), 1):.0f}%, transparent)" + (
        "; color: var(--card)" if share > 0.5 else ""
    )
