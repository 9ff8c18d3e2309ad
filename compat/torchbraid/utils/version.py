"""Version of the library."""

import weft


def git_rev() -> str:
    """Returns weft's version; torchbraid returns its git revision."""
    return f"weft {weft.__version__}"
