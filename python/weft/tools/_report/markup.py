"""Builds HTML and SVG. Text from the files of a run is always escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["Markup", "element", "join", "number", "printable", "table"]


class Markup(str):
    """Text that is already markup. Elements escape all other strings."""


def join(parts: Iterable[object]) -> Markup:
    """Concatenates parts; escapes those that are not Markup."""
    return Markup("".join(_safe(part) for part in parts))


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """Returns an element. ``class_`` means class, underscores in names become hyphens, None omits an attribute."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{written}>{join(content)}</{tag}>")


def table(head: Sequence[object], rows: Iterable[Sequence[object]], class_: str | None = None) -> Markup:
    """Returns a table; columns of numbers are right-aligned."""
    rows = list(rows)
    numeric = [all(_is_number(row[column]) for row in rows) and bool(rows) for column in range(len(head))]
    return element(
        "div",
        element(
            "table",
            element("thead", element("tr", *(_heading(cell, n) for cell, n in zip(head, numeric)))),
            element("tbody", *(element("tr", *(_cell(cell) for cell in row)) for row in rows)),
            class_=class_,
        ),
        class_="scroll",
    )


def number(value: float, digits: int = 6) -> str:
    """Formats a number with few digits."""
    return f"{value:.{digits}g}"


def printable(text: str) -> str:
    """Replaces control characters, which HTML forbids, and lone surrogates, which UTF-8 cannot encode."""
    return "".join(c if c in "\n\t" or _is_printable(ord(c)) else "\ufffd" for c in text)


def _is_printable(code: int) -> bool:
    return code >= 0x20 and not 0x7F <= code < 0xA0 and not 0xD800 <= code < 0xE000


def _is_number(cell: object) -> bool:
    return isinstance(cell, (int, float)) and not isinstance(cell, bool)


def _heading(cell: object, numeric: bool) -> Markup:
    return element("th", cell, class_="number" if numeric else None)


def _cell(cell: object) -> Markup:
    if not _is_number(cell):
        return element("td", cell)
    return element("td", number(cell) if isinstance(cell, float) else cell, class_="number")


def _safe(part: object) -> str:
    return part if isinstance(part, Markup) else _escaped(part)


def _escaped(part: object) -> str:
    return html.escape(printable(str(part)), quote=True)
