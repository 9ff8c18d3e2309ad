"""Deprecated alias of weft.tools.doctor."""

from weft.tools._alias import alias

alias(__name__, "doctor")
