#!/usr/bin/env bash
# The demo: fits a line in parallel, in Python and in C++, and compares with the exact solution.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
echo "Fitting y = a + b x + c x^2 to 10,000 points spread over 2 ranks:"
scripts/mpirun -n 2 .venv/bin/python examples/python/linear_regression.py
scripts/mpirun -n 2 build/"${WEFT_PRESET:-release}"/examples/linear_regression
