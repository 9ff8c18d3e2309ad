"""``weft doctor``: describes the installation and reports problems; exits with status 1 if there are any."""

from __future__ import annotations

import argparse

from weft.communicator import world
from weft.tools._diagnosis import DoctorReport, Problem, doctor

__all__ = ["DoctorReport", "Problem", "doctor"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="weft doctor", description="describe this installation; exit with status 1 if it has problems"
    )
    parser.parse_args(arguments)
    report = doctor()
    if world().rank == 0:
        print(report, flush=True)
    return 1 if report.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
