#!/usr/bin/env bash
# The demo: one experiment on 1 rank and on 4 ranks with the images split into tiles, then a deep network split by layers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset WEFT_DATA # use the sample that `make env` installs: the full MNIST takes longer
weft=build/${WEFT_PRESET:-release}/bin/weft
runs=$(mktemp -d "${TMPDIR:-/tmp}/weft-demo.XXXXXX")

echo "A convolutional network learns to read digits, on 1 rank:"
"$weft" train examples/experiments/mnist_convnet.yaml --out "$runs/1-rank"
echo
echo "The same network from the same seed, with each image split into 2 x 2 tiles on 4 ranks:"
"$weft" train -n 4 examples/experiments/mnist_convnet.yaml --out "$runs/4-ranks"
echo
echo "A network of 32 residual layers on the same images, with its layers split over 2 ranks:"
"$weft" train -n 2 examples/experiments/mnist_layer_parallel.yaml --out "$runs/layers"
echo
.venv/bin/python scripts/demo_table.py "$runs"/{1-rank,4-ranks,layers}
