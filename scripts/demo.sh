#!/usr/bin/env bash
# The demo: fits a line in parallel, in Python and in C++, and compares with the exact solution; then trains a deep
# network whose layers are spread over the ranks, shortly.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
echo "Fitting y = a + b x + c x^2 to 10,000 points spread over 2 ranks:"
scripts/mpirun -n 2 .venv/bin/python examples/python/linear_regression.py
scripts/mpirun -n 2 build/"${WEFT_PRESET:-release}"/examples/linear_regression
echo
echo "Learning to read digits with 32 residual layers spread over 2 ranks:"
scripts/mpirun -n 2 .venv/bin/python examples/python/layer_parallel_mnist.py --steps 32 --images 1500 --epochs 2
