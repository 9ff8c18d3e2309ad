"""The frame of a page: one file with inline style and script, light or dark as the system is set."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from weft.tools._report.markup import Markup, element, join

__all__ = ["page", "section"]


HERE = Path(__file__).parent


def section(title: str, *content: object) -> Markup:
    """Returns a section with a heading."""
    return element("section", element("h2", title), *content)


def page(title: str, subtitle: str, sections: Iterable[Markup]) -> str:
    """Returns a complete HTML document."""
    head = join(
        [
            Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup('<link rel="icon" href="data:,">'),  # without it, browsers request an icon
            element("title", title),
            Markup(f"<style>{_own_file('page.css')}</style>"),
        ]
    )
    body = element("main", element("h1", title), element("p", subtitle, class_="soft"), *sections)
    script = Markup(f"<script>{_own_file('page.js')}</script>")
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}{script}</body></html>\n'


def _own_file(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
