"""Writes synthetic sequences in the format of the UCI HAR data set: python tests/conformance/uci_har_data.py FOLDER

FOLDER receives the folder "UCI HAR Dataset", as torchbraid's recurrent scripts expect it. Each of the six activities is
an oscillation with its own frequencies, with noise and a random phase.
"""

import sys
from pathlib import Path

import numpy as np

STEPS = 128
ACTIVITIES = 6
SENSORS = ("body_acc", "body_gyro", "total_acc")
ROWS = {"train": 400, "test": 160}


def write(folder: Path) -> None:
    random = np.random.default_rng(0)
    time = np.arange(STEPS) / STEPS
    for part, rows in ROWS.items():
        signals = folder / "UCI HAR Dataset" / part / "Inertial Signals"
        signals.mkdir(parents=True, exist_ok=True)
        labels = random.integers(0, ACTIVITIES, rows)
        np.savetxt(signals.parent / f"y_{part}.txt", labels + 1, fmt="%d")
        phases = random.random((rows, 1))
        for number, sensor in enumerate(SENSORS):
            for axis, name in enumerate("xyz"):
                frequencies = (1 + labels + (labels + number) * (axis + 1) % ACTIVITIES)[:, None]
                values = np.sin(2 * np.pi * (frequencies * time + phases)) + 0.3 * labels[:, None] * (axis == 0)
                values += random.normal(0, 0.1, values.shape)
                np.savetxt(signals / f"{sensor}_{name}_{part}.txt", values, fmt="% .7e")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
