"""The version; the same as in pyproject.toml and CMakeLists.txt."""

__version__ = "0.1.0"
