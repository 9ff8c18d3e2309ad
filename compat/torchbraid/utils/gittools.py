"""git_rev under torchbraid's module name."""

from .version import git_rev

__all__ = ["git_rev"]
