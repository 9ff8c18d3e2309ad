"""Deprecated alias of weft.tools.sml_demo."""

from weft.tools._alias import alias

alias(__name__, "sml_demo")
