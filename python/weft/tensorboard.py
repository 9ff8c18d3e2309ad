"""Deprecated alias of weft.tools.tensorboard."""

from weft.tools._alias import alias

alias(__name__, "tensorboard")
