"""``weft plan net.py:net --input 32x1x28x28`` predicts time and memory of a training step for each solver.

It measures the network in one process, replays the tasks of a step on a model of the machine for up to 1,024 ranks, and
marks the fastest option whose gradients are accurate enough.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from weft import _bindings
from weft.planning import Machine, Plan, PlanError, plan
from weft.planning.machine import JobError, cores_of_this_machine
from weft.planning.plan import RANKS
from weft.planning.validation import Comparison, validate
from weft.tools._report.chart import Curve, line_chart
from weft.tools._report.markup import element, table
from weft.tools._report.page import page, section

__all__ = ["load_graph", "load_network", "render"]

KINDS = {"step": "compute", "combine": "compute", "send": "send", "receive": "receive"}


def load_network(target: str) -> Any:
    """Loads ``file.py:name`` or ``module:name``; calls it if it is a function. Raises PlanError."""
    place, separator, name = target.partition(":")
    if not separator or not name:
        raise PlanError(f"weft plan: expected FILE.py:OBJECT, got '{target}'")
    if place.endswith(".py"):
        file = Path(place)
        if not file.is_file():
            raise PlanError(f"weft plan: the file '{place}' does not exist")
        sys.path.insert(0, str(file.resolve().parent))  # jobs import the classes of the layers by this name
        place = file.stem
    try:
        module = importlib.import_module(place)
    except Exception as error:
        raise PlanError(f"weft plan: cannot import '{place}': {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        names = [each for each in vars(module) if not each.startswith("_")]
        raise PlanError(f"weft plan: '{place}' has no object '{name}'; it has {', '.join(names) or 'none'}")
    found = getattr(module, name)
    if inspect.isclass(found) or inspect.isfunction(found):
        try:
            found = found()
        except Exception as error:
            raise PlanError(f"weft plan: {name}() failed: {type(error).__name__}: {error}") from error
    return found


def parse_shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(map(int, text.lower().split("x")))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise argparse.ArgumentTypeError(f"expected a shape such as 32x1x28x28, got '{text}'")
    return shape


def load_graph(file: Path, message_bytes: int) -> list[list[dict[str, Any]]]:
    """Loads a task graph that ``multigrid::Recorder::write_json`` wrote, one file per rank or all in one.

    The recording does not contain the sizes of messages; ``message_bytes`` is that of all. Raises PlanError.
    """
    files = sorted(file.glob("*.json")) if file.is_dir() else [file]
    try:
        events = [event for each in files for event in json.loads(each.read_text(encoding="utf-8"))]
        graph: dict[int, list[tuple[int, dict[str, Any]]]] = {}
        for event in events:
            details = event["args"]
            task = {
                "kind": KINDS[event["name"]],
                "seconds": event["dur"] / 1e6,
                "peer": details["peer"],
                "channel": event["tid"],
                "bytes": message_bytes,
            }
            graph.setdefault(event["pid"], []).append((details["task"], task))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlanError(f"weft plan: '{file}' is not a recorded task graph: {type(error).__name__}: {error}") from None
    if sorted(graph) != list(range(len(graph))):
        raise PlanError(f"weft plan: '{file}' has the tasks of the ranks {sorted(graph)}; all ranks are needed")
    return [[task for _, task in sorted(graph[rank], key=lambda item: item[0])] for rank in sorted(graph)]


def render(result: Plan, comparisons: Sequence[Comparison] = ()) -> str:
    """Returns a page with the curves of time, speed-up and memory, and the table."""
    serial = result.serial
    last = result.ranks[-1]

    def curves(value: Any) -> list[Curve]:
        found = [Curve("serial", [(0, value(serial)), (_exponent(last), value(serial))], "dashed")]
        for solver in result.solvers:
            if solver != "serial":
                found.append(Curve(solver, [(_exponent(each.ranks), value(each)) for each in result.of(solver)]))
        return found

    axis = "log2 of the ranks"
    charts = [
        line_chart("milliseconds per step", curves(lambda each: 1e3 * each.seconds), axis),
        line_chart("speed-up", curves(lambda each: serial.seconds / each.seconds), axis),
        line_chart("MiB per rank", curves(lambda each: each.memory / 2**20), axis),
    ]
    head = ["ranks", "solver", "setting", "ms", "speed-up", "MiB", "bias", "fastest"]
    rows = [
        [
            each.ranks,
            each.solver,
            each.setting,
            1e3 * each.seconds,
            serial.seconds / each.seconds,
            each.memory / 2**20,
            each.bias,
            "yes" if each == result.best(each.ranks) else "",
        ]
        for each in sorted(result.predictions, key=lambda each: each.ranks)
    ]
    sections = [
        section("Answer", element("p", result.answer()), *(element("p", note, class_="soft") for note in result.notes)),
        section("Curves", element("div", *charts, class_="charts")),
        section("Predictions", table(head, rows)),
    ]
    if comparisons:
        compared = [[c.ranks, c.solver, c.setting, 1e3 * c.predicted, 1e3 * c.measured, c.error] for c in comparisons]
        head = ["ranks", "solver", "setting", "predicted ms", "measured ms", "error"]
        sections.append(section("Validation on this machine", table(head, compared)))
    return page("Plan", result.network, sections)


def _exponent(ranks: int) -> float:
    return math.log2(ranks)


def _print_comparisons(comparisons: Sequence[Comparison]) -> None:
    cores = cores_of_this_machine()
    print(f"\nReal runs on this machine ({cores} cores; more ranks share the cores):")
    load = os.getloadavg()[0]
    if load > cores:
        print(f"  The load of this machine is {load:.1f}: other processes slow the real runs down.")
    for each in comparisons:
        print(
            f"  {each.ranks} ranks  {each.solver:<8}  {each.setting:<38}  predicted {1e3 * each.predicted:8.2f} ms  "
            f"measured {1e3 * each.measured:8.2f} ms  error {each.error:+.0%}"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="weft plan",
        description="predict time and memory of a training step for each solver on up to 1,024 ranks",
        epilog="Example: weft plan net.py:net --input 32x1x28x28 --latency 2e-6 --bandwidth 12e9 --cores 64 -n 128",
    )
    parser.add_argument(
        "network",
        help="FILE.py:OBJECT or MODULE:OBJECT, a network or a function that returns one; or a recorded task graph "
        "(a JSON file or a folder with one file per rank)",
    )
    parser.add_argument(
        "--input", help="shape of a batch, such as 32x1x28x28; a comma separates the tensors of a state"
    )
    parser.add_argument("-n", type=int, metavar="N", help="answer for this number of ranks")
    parser.add_argument("--form", default="residual", help="residual, step or plain, for a sequence of modules")
    parser.add_argument("--tf", type=float, default=1.0, help="end time of the network (default: 1)")
    parser.add_argument("--bound", type=float, default=0.1, help="largest bias of the gradient (default: 0.1)")
    parser.add_argument("--latency", type=float, help="seconds per message (default: measured on this machine)")
    parser.add_argument("--bandwidth", type=float, help="bytes per second (default: measured on this machine)")
    parser.add_argument("--cores", type=int, help="cores of a node (default: those of this machine)")
    parser.add_argument("--ranks-per-node", type=int, help="ranks on each node (default: one per core)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each rank (default: 1)")
    parser.add_argument("--repeats", type=int, default=3, help="measurements per value (default: 3)")
    parser.add_argument("--message-bytes", type=int, default=0, help="size of the messages of a recorded task graph")
    parser.add_argument("--validate", action="store_true", help="compare with real runs on 2 and 4 ranks")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with curves to this file")
    return parser


def _machine(chosen: argparse.Namespace) -> Machine:
    found = Machine.measure(chosen.latency, chosen.bandwidth, chosen.cores)
    return Machine(found.latency, found.bandwidth, found.cores, chosen.ranks_per_node)


def _replay_graph(chosen: argparse.Namespace) -> int:
    graph = load_graph(Path(chosen.network), chosen.message_bytes)
    machine = _machine(chosen)
    found = _bindings.load().plan_replay(graph, machine.describe())
    alone = sum(task["seconds"] for tasks in graph for task in tasks if task["kind"] == "compute")
    found = {"ranks": len(graph), **found, "work": alone, "efficiency": alone / len(graph) / found["seconds"]}
    if chosen.json:
        print(json.dumps(found))
    else:
        print(
            f"{len(graph)} ranks: {1e3 * found['seconds']:.3g} ms, {found['messages']} messages; the tasks take "
            f"{1e3 * alone:.3g} ms on one rank, so {found['efficiency']:.0%} of the time is work"
        )
    return 0


def _run(chosen: argparse.Namespace) -> int:
    if ":" not in chosen.network and Path(chosen.network).exists():
        return _replay_graph(chosen)
    network = load_network(chosen.network)
    if chosen.input is None:
        raise PlanError("weft plan: pass the shape of a batch, such as --input 32x1x28x28")
    tensors = tuple(torch.randn(parse_shape(text)) for text in chosen.input.split(","))
    x = tensors[0] if len(tensors) == 1 else tensors
    if chosen.n is not None and chosen.n < 1:
        raise PlanError(f"weft plan: expected at least one rank, got -n {chosen.n}")
    options: dict[str, Any] = {name: getattr(chosen, name) for name in ("bound", "form", "tf", "threads", "repeats")}
    counts = RANKS if chosen.n is None else sorted({*RANKS, chosen.n})
    result = plan(network, x, machine=_machine(chosen), ranks=counts, **options)
    comparisons = validate(network, x, **options) if chosen.validate else []
    if chosen.json:
        compared = [{**vars(each), "error": each.error} for each in comparisons]
        print(json.dumps({**json.loads(result.to_json()), "validation": compared}, indent=1))
    else:
        print(result)
        if chosen.n is not None:
            print(result.answer(chosen.n))
        if comparisons:
            _print_comparisons(comparisons)
    if chosen.html is not None:
        chosen.html.write_text(render(result, comparisons), encoding="utf-8")
        print(chosen.html, file=sys.stderr if chosen.json else sys.stdout)
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    chosen = parser.parse_args(arguments)
    try:
        return _run(chosen)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    except (PlanError, JobError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
