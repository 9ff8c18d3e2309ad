"""Runs torchbraid's own tests, unmodified, against the drop-in on 1, 2 and 3 ranks.

WEFT_TORCHBRAID_SUITE names a checkout that contains the ``tests`` folder. It omits the test of GPUs.
"""

import sys

import foreign_suite

RANKS = (1, 2, 3)
TESTS = {
    "test_layer_parallel": 10,
    "test_layer_parallel_multinode": 2,
    "test_composite": 2,
    "test_grad_update": 2,
    "test_FlatPackUnpack": 2,
    "test_ContextTimer": 2,
    "test_mean_initial_guess": 4,
    "test_data_parallel": 1,
    "test_callbacks": 4,
    "test_gru_layer_parallel": 5,
}


def main() -> int:
    folder = foreign_suite.checkout("torchbraid", [f"{name}.py" for name in TESTS])
    failed = 0
    for ranks in RANKS:
        for name, count in TESTS.items():
            passed = foreign_suite.run(folder, [str(folder / f"{name}.py")], ranks, count)
            print(f"{name}, {count} tests on {ranks} ranks: {'passed' if passed else 'FAILED'}", flush=True)
            failed += not passed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
