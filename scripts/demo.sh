#!/usr/bin/env bash
# The demo: the same experiment on one rank and on four with images in tiles, then its data with layers over the ranks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset WEFT_DATA # the sample that make env installs: the whole of MNIST takes longer
weft=build/${WEFT_PRESET:-release}/bin/weft
runs=$(mktemp -d "${TMPDIR:-/tmp}/weft-demo.XXXXXX")

echo "A convolutional network learns to read digits, on 1 rank:"
"$weft" train examples/experiments/mnist_convnet.yaml --out "$runs/1-rank"
echo
echo "The same from the same seed, each image in 2 x 2 tiles on 4 ranks:"
"$weft" train -n 4 examples/experiments/mnist_convnet.yaml --out "$runs/4-ranks"
echo
echo "The same images, a network of 32 residual layers spread over 2 ranks:"
"$weft" train -n 2 examples/experiments/mnist_layer_parallel.yaml --out "$runs/layers"
echo
.venv/bin/python scripts/demo_table.py "$runs"/{1-rank,4-ranks,layers}
