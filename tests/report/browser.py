"""Opens a report in headless Chromium, checks console errors, curves and the read-out, and takes screenshots.

python tests/report/browser.py <run> [--screenshot docs/report.png] [--phone docs/report-phone.png]
"""

from __future__ import annotations

import argparse
import html
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
NARROWEST = 500  # Chromium's windows are at least this wide
SECTIONS = ["Filters", "Reconstructions", "Optimal stimuli", "Confusion matrix", "Timeline", "Split"]
# Runs in the page: with the pointer in the middle of the first chart, the read-out shows the values of the curves.
POINTER = """<script>
const chart = document.querySelector('svg[data-series]'), frame = chart.getBoundingClientRect();
chart.dispatchEvent(new PointerEvent('pointermove', {clientX: frame.left + frame.width / 2, clientY: frame.top + 9}));
document.body.dataset.height = document.documentElement.scrollHeight;
document.body.dataset.width = document.documentElement.scrollWidth;
</script>"""


# Shows a page in a frame as wide as a phone.
FRAME = """<!doctype html><title>phone</title><body style="margin: 0; background: #9a9a96">
<iframe id="phone" style="display: block; margin: 0 auto; border: 0; width: {width}px; height: 800px" srcdoc="{page}">
</iframe><script>
const phone = document.getElementById('phone');
phone.onload = () => {{
  const root = phone.contentDocument.documentElement;
  document.body.dataset.width = root.scrollWidth;
  document.body.dataset.height = root.scrollHeight;
  phone.style.height = root.scrollHeight + 'px';
}};
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


def on_a_phone(page: Path, folder: Path) -> Path:
    """Returns a page that shows the other one in a frame of the width PHONE."""
    frame = folder / "phone.html"
    frame.write_text(FRAME.format(width=PHONE, page=html.escape(page.read_text())))
    return frame


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
    dom, _ = chromium(on_a_phone(page, folder), "--dump-dom", f"--window-size={NARROWEST},800")
    width = int(re.findall(r'data-width="(\d+)"', dom)[0])
    expect(width <= PHONE, f"the page is {width} pixels wide on a phone of {PHONE}")
    return {**heights, PHONE: int(re.findall(r'data-height="(\d+)"', dom)[0])}


def take(page: Path, width: int, height: int, file: Path) -> None:
    chromium(page, f"--window-size={width},{height}", f"--screenshot={file.resolve()}")
    expect(file.exists(), f"{file}")


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
        if chosen.screenshot:
            take(page, WIDTH, min(heights[WIDTH], chosen.top), chosen.screenshot)
        if chosen.phone:
            take(on_a_phone(page, Path(folder)), NARROWEST, min(heights[PHONE], chosen.top), chosen.phone)


if __name__ == "__main__":
    main()
