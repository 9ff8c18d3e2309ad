"""HTML and SVG as text in which nothing that came from a run's files can become markup."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["Markup", "element", "join", "number", "printable", "table"]


class Markup(str):
    """Text that is markup already; every other string is escaped when it is put into an element."""


def join(parts: Iterable[object]) -> Markup:
    return Markup("".join(_safe(part) for part in parts))


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """``class_`` means class, underscores in names mean hyphens; attributes that are None are left out."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{written}>{join(content)}</{tag}>")


def table(head: Sequence[object], rows: Iterable[Sequence[object]], class_: str | None = None) -> Markup:
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
    """Short, for people."""
    return f"{value:.{digits}g}"


def printable(text: str) -> str:
    """Control characters, which HTML does not allow, and halves of characters, which no file can hold, replaced."""
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
