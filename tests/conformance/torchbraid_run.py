"""Runs one of torchbraid's scripts, unmodified: python torchbraid_run.py SCRIPT ARGUMENTS...

Before, it accepts the synthetic CIFAR-10 files, whose checksums differ from those of the original files. If torchbraid
is the original, its dry run restores the random number generator: the order of shuffled batches then does not depend on
the dry run.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

import torch


def accept_synthetic_files() -> None:
    try:
        import torchvision.datasets.cifar
    except ImportError:  # the script reports it if it needs torchvision
        return
    torchvision.datasets.cifar.check_integrity = lambda *_: True


def keep_generator_in_dry_run() -> None:
    try:
        from torchbraid.odenet_apps import ForwardODENetApp
    except ImportError:  # the drop-in
        return
    dry_run = ForwardODENetApp.buildShapes

    def build_shapes(self: Any, *args: Any) -> Any:
        with torch.random.fork_rng(devices=[]):
            return dry_run(self, *args)

    ForwardODENetApp.buildShapes = build_shapes


if __name__ == "__main__":
    accept_synthetic_files()
    keep_generator_in_dry_run()
    sys.argv = sys.argv[1:]
    sys.path[0] = os.getcwd()
    runpy.run_path(sys.argv[0], run_name="__main__")
