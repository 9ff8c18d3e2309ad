"""Seeds that differ from rank to rank."""

_MASK = (1 << 64) - 1


def seed_from_rank(seed: int, rank: int) -> int:
    """Returns a seed for this rank, derived from the given seed by splitmix64; non-negative."""
    x = (seed + (rank + 1) * 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return (x ^ (x >> 31)) >> 1
