"""The blocks of docs/integrations.md that need other packages are parts of the tested example programs."""

from __future__ import annotations

import re

from integrations.examples import FOLDER

PAGE = FOLDER.parents[1] / "docs" / "integrations.md"


def test_blocks_are_parts_of_the_examples() -> None:
    sources = "".join(path.read_text() for path in [*FOLDER.glob("*.py")])
    blocks = re.findall(r"```py\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        assert block in sources, block


def test_versions_are_those_of_the_requirements() -> None:
    page = PAGE.read_text()
    for line in (FOLDER.parents[1] / "requirements-integrations.txt").read_text().splitlines():
        package, _, version = line.partition("==")
        if package in ("lightning", "accelerate", "transformers", "tensorboard", "ipyparallel"):
            assert f"{version} |" in page, line
