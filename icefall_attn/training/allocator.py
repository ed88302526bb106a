"""Memory that a step frees is kept for the next one."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> bool:
    """Tells the C library not to hand large freed blocks back to the system.

    A training step on a CPU allocates and frees the same large tensors again and again; by
    default each comes from the system as fresh pages, which the kernel first fills with zeros.
    Returns whether the C library takes such advice (glibc does).
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    accepted = mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    return bool(accepted and mallopt(M_TOP_PAD, 64 * 2**20))


def release_freed_memory() -> None:
    """Hands all that is kept so back once, where the C library can."""
    if not sys.platform.startswith("linux"):
        return
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        pass
