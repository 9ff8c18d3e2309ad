"""Runs every Python block of docs/ and README.md on any number of ranks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(page for page in [*ROOT.glob("docs/*.md"), ROOT / "README.md"] if "```python" in page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_of_the_page_run(page: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    assert blocks
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"{page.name} block {number}", "exec"), {"__name__": "__docs__"})
