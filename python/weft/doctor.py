"""``python -m weft.doctor``: rank 0 prints the report of weft.doctor(); status 1 if it names problems."""

from __future__ import annotations

import argparse

from weft import doctor, world


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="weft doctor", description="what this installation is made of, and what of it is a problem (status 1)"
    )
    parser.parse_args(arguments)
    report = doctor()
    if world().rank == 0:
        print(report, flush=True)
    return 1 if report.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
