"""Which library this is."""

import weft


def git_rev() -> str:
    """torchbraid's revision; here, weft's version."""
    return f"weft {weft.__version__}"
