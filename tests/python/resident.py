"""Memory use of the test process."""

import ctypes
import gc
import resource
from pathlib import Path


def resident_bytes() -> int:
    """Returns the resident size after freed memory was returned to the system."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
