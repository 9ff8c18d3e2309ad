"""Opens a report in headless Chromium, checks console errors, curves and the read-out, and takes screenshots.

python tests/report/browser.py <run> [--screenshot docs/report.png] [--phone docs/report-phone.png]
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from weft.tools import report

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--no-first-run",
]
WIDTH, PHONE = 1120, 420
SECTIONS = ["Filters", "Reconstructions", "Optimal stimuli", "Confusion matrix", "Timeline", "Split"]
# Runs in the page: with the pointer in the middle of the first chart, the read-out shows the values of the curves.
POINTER = """<script>
const chart = document.querySelector('svg[data-series]'), frame = chart.getBoundingClientRect();
chart.dispatchEvent(new PointerEvent('pointermove', {clientX: frame.left + frame.width / 2, clientY: frame.top + 9}));
document.body.dataset.height = document.documentElement.scrollHeight;
document.body.dataset.width = document.documentElement.scrollWidth;
</script>"""


def chromium(page: Path, *flags: str) -> tuple[str, list[str]]:
    """Returns stdout and the console messages of the page."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        sys.exit("test-report: Chromium not found; scripts/test_report.sh installs it")
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [program, *FLAGS, f"--user-data-dir={profile}", *flags, page.resolve().as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def expect(holds: bool, what: str) -> None:
    print(("ok      " if holds else "FAILED  ") + what)
    if not holds:
        sys.exit(1)


def check_error_detection(folder: Path) -> None:
    """Checks that console errors are detected at all."""
    broken = folder / "broken.html"
    broken.write_text("<!doctype html><title>x</title><script>undefined.x</script>")
    expect(bool(chromium(broken, "--dump-dom")[1]), "the console shows the error of a broken page")


def check_page(page: Path, folder: Path, sections: list[str]) -> dict[int, int]:
    """Checks the page and returns its height in pixels for each width."""
    watched = folder / "report.html"
    watched.write_text(page.read_text() + POINTER)
    dom, console = chromium(watched, "--dump-dom", f"--window-size={WIDTH},800")
    expect(not console, f"no console messages {console}")
    curves = re.findall(r'<path class="curve" d="([^"]*)"', dom)
    expect(len(curves) >= 3, f"{len(curves)} curves")
    expect(all(curve.count("L") >= 1 for curve in curves), "every curve has a line")
    readouts = re.findall(r'class="readout">([^<]+)<', dom)
    expect(bool(readouts) and "step" in readouts[0], f"read-out: {readouts[:1]}")
    for title in sections:
        expect(f">{title}<" in dom, title)
    heights = {WIDTH: int(re.findall(r'data-height="(\d+)"', dom)[0])}
    dom, _ = chromium(watched, "--dump-dom", f"--window-size={PHONE},800")
    width = int(re.findall(r'data-width="(\d+)"', dom)[0])
    expect(width <= PHONE, f"the page is {width} pixels wide on a phone of {PHONE}")
    return {**heights, PHONE: int(re.findall(r'data-height="(\d+)"', dom)[0])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--screenshot", type=Path, help=f"file for a screenshot {WIDTH} pixels wide")
    parser.add_argument("--phone", type=Path, help=f"file for a screenshot {PHONE} pixels wide")
    parser.add_argument(
        "--top", type=int, default=1_000_000, help="height of the screenshots (default: the whole page)"
    )
    parser.add_argument("--sections", nargs="*", default=SECTIONS, help="sections that the page must have")
    chosen = parser.parse_args()
    page, problems = report.write(chosen.run)
    expect(not problems, f"the run is complete {problems}")
    with tempfile.TemporaryDirectory() as folder:
        check_error_detection(Path(folder))
        heights = check_page(page, Path(folder), chosen.sections)
    for width, file in ((WIDTH, chosen.screenshot), (PHONE, chosen.phone)):
        if file:
            size = f"--window-size={width},{min(heights[width], chosen.top)}"
            chromium(page, size, f"--screenshot={file.resolve()}")
            expect(file.exists(), f"{file}")


if __name__ == "__main__":
    main()
