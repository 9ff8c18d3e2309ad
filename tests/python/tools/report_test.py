"""``weft report``: contents of the page; missing, damaged and malicious parts of a run."""

from __future__ import annotations

import base64
import html.parser
import json
import math
import re
import struct
import zlib
from pathlib import Path

import pytest
from tools import runs
from weft.tools import report
from weft.tools._report.chart import Curve, line_chart, thinned, ticks
from weft.tools._report.markup import Markup, element
from weft.tools._report.pictures import png
from weft.tools._report.timeline import read_spans, thread_names, timeline
from weft.tools._run import Run, RunError


class Outline(html.parser.HTMLParser):
    """Collects tags with their attributes, and checks that they are closed in order."""

    VOID = frozenset({"meta", "link", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def with_class(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.tags if name in (attributes.get("class") or "").split()]

    def count(self, tag: str) -> int:
        return sum(found == tag for found, _ in self.tags)


def read(run: Path) -> Outline:
    assert report.main([str(run)]) == 0
    return Outline((run / "report.html").read_text())


def test_complete_run_has_all_sections(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs.write_whole_run(tmp_path)
    page = read(tmp_path)
    text = " ".join(page.text)
    for title in ("Curves", "Split", "Filters", "Reconstructions", "Optimal stimuli", "Confusion", "Timeline"):
        assert title in text
    assert "Missing from this report" not in text
    assert [curve["data-name"] for curve in page.with_class("curve")] == ["test/error", "train/loss", "test/loss"]
    assert page.count("img") == 3 and page.count("rect") == 4
    assert "12 x 12" in page.text and "num_epochs: 2" in text
    assert "float64" in page.text and "mnist in somewhere" in page.text
    assert capsys.readouterr().err == ""


def test_nothing_is_fetched(tmp_path: Path) -> None:
    runs.write_whole_run(tmp_path)
    for tag, attributes in read(tmp_path).tags:
        for name in ("src", "href", "data", "action"):
            assert (attributes.get(name) or "data:").startswith("data:"), (tag, attributes)
    assert not re.search(r"@import|url\(", (tmp_path / "report.html").read_text())


def test_curves_are_drawn_at_their_coordinates(tmp_path: Path) -> None:
    chart = Outline(line_chart("loss", [Curve("a", [(0, 0.0), (5, 10.0), (10, 5.0)])]))
    (path,) = chart.with_class("curve")
    points = [tuple(map(float, pair)) for pair in re.findall(r"[ML]([\d.]+) ([\d.]+)", path["d"] or "")]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2) and x0 < x1
    assert y1 < y2 < y0  # y grows downwards in SVG
    assert y0 - y2 == pytest.approx(y2 - y1, abs=0.2)


def test_non_finite_values_leave_a_gap() -> None:
    values = [1.0, 2.0, math.nan, 3.0, math.inf, 4.0]
    chart = Outline(line_chart("loss", [Curve("a", list(enumerate(values)))]))
    (path,) = chart.with_class("curve")
    assert (path["d"] or "").count("M") == 3 and "nan" not in (path["d"] or "")
    assert "2 non-finite values" in chart.text
    nothing = Outline(line_chart("loss", [Curve("a", [(0, math.nan)])]))
    assert "no finite value" in nothing.text


@pytest.mark.parametrize(
    "values",
    [
        [0.0],
        [5.0, 5.0],
        [1e-300, 2e-300],
        [-1e308, 1e308],
        [1e308, 1.0, 1e-308],
        [0.1 + 1e-17, 0.1],
        [2**70, 2**70 + 1],
    ],
)
def test_odd_values_stay_inside_the_axes(values: list[float]) -> None:
    chart = Outline(line_chart("odd", [Curve("a", list(enumerate(values)))]))
    (path,) = chart.with_class("curve")
    for number in re.findall(r"-?[\d.]+", path["d"] or ""):
        assert -1 <= float(number) <= 521


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert ticks(3, 47) == pytest.approx([10, 20, 30, 40])
    assert ticks(1, 120) == pytest.approx([20, 40, 60, 80, 100, 120])
    for low, high in ((-1e-9, 2e-9), (1e6, 1e6 + 3), (-5.5, 0.1)):
        found = ticks(low, high)
        assert 2 <= len(found) <= 7 and low <= found[0] + 1e-9 * abs(low) and found[-1] <= high + 1e-9 * abs(high)


def test_long_curves_keep_their_peaks() -> None:
    points = [(float(i), math.sin(i)) for i in range(100_000)]
    points[70_001] = (70_001.0, 9.0)
    points[30_003] = (30_003.0, -9.0)
    kept = thinned(points, 600)
    assert len(kept) < 620 and points[70_001] in kept and points[30_003] in kept
    assert kept[0] == points[0] and kept[-1] == points[-1]
    assert [p[0] for p in kept] == sorted(p[0] for p in kept)


def test_resumed_runs_count_a_step_once(tmp_path: Path) -> None:
    runs.write_metrics(tmp_path, [*runs.metrics("loss", [3, 2, 1]), *runs.metrics("loss", [20, 10], first=1)])
    assert [(p.step, p.value) for p in Run(tmp_path).curves["loss"]] == [(0, 3), (1, 20), (2, 10)]


def test_single_values_are_not_drawn(tmp_path: Path) -> None:
    runs.write_metrics(tmp_path, [*runs.metrics("loss", [2, 1]), *runs.metrics("final/error", [0.5])])
    assert [curve["data-name"] for curve in read(tmp_path).with_class("curve")] == ["loss"]
    runs.write_metrics(tmp_path, runs.metrics("loss", [2]))
    assert len(read(tmp_path).with_class("curve")) == 1


def cards(run: Path) -> list[tuple[str, str]]:
    text = (run / "report.html").read_text()
    found = re.findall(r'class="value">([^<]*)</div><div class="name">([^<]*)<', text)
    return [(name, value) for value, name in found]


def test_cards_start_with_the_error_the_time_and_the_ranks(tmp_path: Path) -> None:
    runs.write_whole_run(tmp_path)
    read(tmp_path)
    assert cards(tmp_path)[:3] == [("test error", "15.00%"), ("time", "59 s"), ("ranks", "4")]
    names = [name for name, _ in cards(tmp_path)]
    assert len(set(names)) == len(names) and "test/error" not in names
    lines = [*runs.metrics("train/cost", [3.0, 2.0]), *runs.metrics("train/epoch cost", [2.5])]
    lines += [*runs.metrics("test/error", [0.5]), *runs.metrics("final/test_error", [0.25])]
    lines += [*runs.metrics("speed/images per second", [1234.5]), *runs.metrics("test/top3", [0.125])]
    runs.write_metrics(tmp_path, lines)
    read(tmp_path)
    assert dict(cards(tmp_path)) == {
        "test error": "25.00%",
        "time": "1 s",
        "ranks": "4",
        "images per second": "1234",
        "training cost": "2.5",
        "test/top3": "12.50%",
    }


def test_errors_are_in_percent_and_axes_have_labels() -> None:
    chart = Outline(line_chart("error", [Curve("test/error", [(0, 0.5), (1, 0.25), (2, 0.05)])]))
    assert "error in %" in chart.text and "step" in chart.text and "20" in chart.text
    (series,) = json.loads(next(a["data-series"] or "" for tag, a in chart.tags if tag == "svg"))
    assert series["points"] == [[0, 50], [1, 25], [2, 5]]
    cost = Outline(line_chart("cost", [Curve("a", [(0, 0.5), (1, 0.25)])]))
    assert "cost" in cost.text and "cost in %" not in cost.text


def test_timelines_have_ticks() -> None:
    shown = Outline(timeline(read_spans(runs.spans(0, 0, "step", [(i * 1e6, 9e5) for i in range(5)]))))
    assert "seconds" in shown.text and {"0", "1", "2", "3", "4"} <= set(shown.text)
    short = Outline(timeline(read_spans(runs.spans(0, 0, "step", [(0, 2000)]))))
    assert "milliseconds" in short.text and "2" in short.text


def test_missing_parts_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").write_text("{}")
    page = read(tmp_path)
    errors = capsys.readouterr().err
    for part in ("metrics.jsonl", "config.yaml", "split.json", "trace.json", "pictures"):
        assert f"{part}: " in " ".join(page.text) and f"{part}: " in errors
    assert "no metrics yet" in page.text


def test_folders_without_a_run_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(tmp_path / "absent")]) == 1
    assert "absent" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file"):
        Run(tmp_path / "file")
    assert report.main([str(tmp_path)]) == 1  # not a run folder
    assert "is not a run folder" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_errors_are_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs.write_whole_run(tmp_path)
    assert report.main([str(tmp_path), "--out", str(tmp_path / "absent" / "page.html")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("weft report: cannot write '") and error.endswith("': No such file or directory\n")


def test_filters_with_nan_are_shown(tmp_path: Path) -> None:
    runs.write_whole_run(tmp_path)
    pixels = [None] * 3 + [1.0]
    described = {"height": 2, "width": 2, "images": [{"pixels": pixels, "label": "lost"}]}
    (tmp_path / "pictures/filters-1.json").write_text(json.dumps(described))
    page = read(tmp_path)
    assert "lost" in page.text
    assert "filters-1.json" not in " ".join(page.text)


DAMAGED = [b"", b"{", b"[1, 2", b"\xff\xfe\0", b"null", b'"text"', b"[" * 100_000, b"{}", b"[[]]", b"[{}]", b"1e999"]


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_parts_do_not_break_the_page(tmp_path: Path, content: bytes) -> None:
    runs.write_whole_run(tmp_path)
    for name in ("metrics.jsonl", "split.json", "trace.json", "config.yaml", "pictures/filters-1.json"):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "pictures/stimuli.png").write_bytes(content)
    page = read(tmp_path)
    assert "pictures/stimuli.png: not a PNG file" in page.text
    assert "Confusion matrix" in page.text


@pytest.mark.parametrize(
    "described",
    [
        {"height": 2, "width": 2, "images": [{"pixels": [1, 2, 3]}]},
        {"height": 2, "width": 2, "images": [{"pixels": [1, 2, 3, "x"]}]},
        {"height": -1, "width": 2, "images": []},
        {"height": 10**9, "width": 10**9, "images": []},
        {"height": 4096, "width": 4096, "images": [{}]},
        {"height": 2, "width": 2, "channels": 2, "images": []},
        {"height": 2, "width": 2, "images": 7},
        {"height": 2, "width": 2, "images": [None]},
        {"counts": [[1, 2], [3]]},
        {"counts": [["a"]]},
    ],
)
def test_invalid_pictures_are_reported(tmp_path: Path, described: object) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures/filters.json").write_text(json.dumps(described))
    assert any("pictures/filters.json: " in text for text in read(tmp_path).text)


def test_markup_in_strings_is_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&lt;\0\x1b"
    runs.write_metrics(tmp_path, runs.metrics(evil, [1.0, 2.0]))
    (tmp_path / "config.yaml").write_text(evil)
    (tmp_path / "split.json").write_text(json.dumps([{evil: evil}, {evil: [evil]}]))
    (tmp_path / "trace.json").write_text(json.dumps(runs.spans(0, 0, evil, [(0, 1)])))
    (tmp_path / "pictures").mkdir()
    image = {"title": evil, "height": 1, "width": 1, "images": [{"label": evil, "pixels": [1]}]}
    (tmp_path / "pictures/filters.json").write_text(json.dumps(image))
    (tmp_path / "pictures/confusion.json").write_text(json.dumps({"title": evil, "classes": [evil], "counts": [[1]]}))
    page = read(tmp_path)
    assert page.count("script") == 1 and page.count("img") == 1
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
    text = (tmp_path / "report.html").read_text()
    assert "\0" not in text and "\x1b" not in text
    assert any(evil[:25] in part for part in page.text)  # shown as text


def test_lone_surrogates_are_replaced(tmp_path: Path) -> None:
    broken = "a\ud800b\udfff"
    runs.write_metrics(tmp_path, runs.metrics(broken, [1.0, 2.0]))
    (tmp_path / "split.json").write_text(json.dumps([{broken: [broken]}]))
    (tmp_path / "trace.json").write_text(json.dumps(runs.spans(0, 0, broken, [(0, 1)])))
    (tmp_path / "pictures").mkdir()
    image = {"title": broken, "height": 1, "width": 1, "images": [{"label": broken, "pixels": [1]}]}
    (tmp_path / "pictures/filters.json").write_text(json.dumps(image))
    page = read(tmp_path)
    assert [curve["data-name"] for curve in page.with_class("curve")] == ["a\ufffdb\ufffd"]
    assert page.text.count("a\ufffdb\ufffd") >= 5
    # The neighbours of the surrogates, and a character beyond them, are kept.
    assert element("p", "\ud7ff\ue000\U0001f600") == "<p>\ud7ff\ue000\U0001f600</p>"


def test_markup_escapes_everything_but_markup() -> None:
    assert element("p", "<b>", Markup("<i></i>"), title='"') == '<p title="&quot;">&lt;b&gt;<i></i></p>'


def test_png_has_valid_chunks_and_pixels() -> None:
    content = png([[[0], [128]], [[255], [7]], [[1], [2]]])
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, rest = {}, content[8:]
    while rest:
        (length,) = struct.unpack(">I", rest[:4])
        kind, data = rest[4:8], rest[8 : 8 + length]
        assert zlib.crc32(kind + data) == struct.unpack(">I", rest[8 + length : 12 + length])[0]
        chunks[kind], rest = data, rest[12 + length :]
    assert struct.unpack(">IIBBBBB", chunks[b"IHDR"]) == (2, 3, 8, 0, 0, 0, 0)
    assert zlib.decompress(chunks[b"IDAT"]) == bytes([0, 0, 128, 0, 255, 7, 0, 1, 2])
    assert list(chunks)[-1] == b"IEND"


def test_pictures_are_scaled_from_their_smallest_to_their_largest(tmp_path: Path) -> None:
    runs.write_whole_run(tmp_path)
    sources = [attributes["src"] for tag, attributes in read(tmp_path).tags if tag == "img"]
    content = base64.b64decode((sources[0] or "").split(",", 1)[1])
    expected = png([[[85], [128], [170]], [[0], [255], [85]]])  # 0, .5, 1, -1, 2, 0 between -1 and 2
    assert content == expected


def test_timelines_limit_spans_and_name_threads(tmp_path: Path) -> None:
    many = [span for rank in range(3) for span in runs.spans(rank, 0, "step", [(i * 10.0, 9.0) for i in range(3000)])]
    shown = Outline(timeline(read_spans(many)))
    assert 1000 < shown.count("rect") <= 2500
    assert "rank 2, thread 0" in shown.text and any("from the middle" in text for text in shown.text)
    assert "0.027" in shown.text  # 3,000 x 9 microseconds, including spans that are not drawn
    named = [
        *runs.spans(0, 3, "a", [(0, 1)]),
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 3, "args": {"name": "data"}},
    ]
    assert "rank 0, data" in Outline(timeline(read_spans(named), thread_names(named))).text
    assert (
        thread_names([{"ph": "M", "name": "thread_name"}, {"ph": "M", "name": "thread_name", "pid": [], "tid": 0}])
        == {}
    )
    broken = [{}, {"pid": "x"}, *runs.spans(0, 0, "a", [(math.nan, 1), (1, -1), (math.inf, 1)]), {"ph": "M"}]
    assert read_spans(broken) == []


def test_more_curves_than_colours_differ_in_the_legend() -> None:
    chart = line_chart("cost", [Curve(f"{i}/cost", [(1, 1.0), (2, 10000.0)]) for i in range(9)])
    assert chart.count('class="dashed"') == 1 and ">10000<" in chart
