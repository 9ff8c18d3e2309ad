"""Deprecated alias of weft.tools.report."""

from weft.tools._alias import alias

alias(__name__, "report")
