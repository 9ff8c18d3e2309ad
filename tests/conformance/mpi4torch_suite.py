"""Runs mpi4torch's own test suite, unmodified, against the drop-in on 2, 3, 5 and 7 ranks.

WEFT_MPI4TORCH_SUITE names a checkout that contains the ``tests`` folder.
"""

import sys

import foreign_suite

RANKS = (2, 3, 5, 7)
TESTS = 23


def main() -> int:
    folder = foreign_suite.checkout("mpi4torch")
    failed = 0
    for ranks in RANKS:
        passed = foreign_suite.run(folder.parent, ["-m", "nose2", "-s", "tests"], ranks, TESTS)
        print(f"mpi4torch's {TESTS} tests on {ranks} ranks: {'passed' if passed else 'FAILED'}", flush=True)
        failed += not passed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
