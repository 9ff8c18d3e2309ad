"""Opt-in support for other packages: importing one of these modules adds weft to the package that it is named after."""
