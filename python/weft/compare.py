"""Deprecated alias of weft.tools.compare."""

from weft.tools._alias import alias

alias(__name__, "compare")
