"""Functions for flat buffers under torchbraid's module name."""

from .flat_buffer import buffer_size, pack_buffer, unpack_buffer

__all__ = ["buffer_size", "pack_buffer", "unpack_buffer"]
