"""Seeds that differ between ranks."""

_MASK = (1 << 64) - 1


def seed_from_rank(seed: int, rank: int) -> int:
    """Returns a seed for this rank; non-negative.

    Rank 0 gets torchbraid's seed. torchbraid gives rank r the seed of rank 0 for ``seed + r``; here splitmix64 gives
    the other ranks seeds of their own.
    """
    if rank == 0:
        return (1664525 * seed + 1013904113) % 2**32
    x = (seed + (rank + 1) * 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return (x ^ (x >> 31)) >> 1
