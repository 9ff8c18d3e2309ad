"""``python -m weft.doctor``: prints the report of weft.doctor(), by rank 0 under mpirun."""

from __future__ import annotations

from weft import doctor, world


def main() -> int:
    report = doctor()
    if world().rank == 0:
        print(report, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
