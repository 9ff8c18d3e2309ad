"""Runs PyTorch's tests of torch.distributed, which are in its wheel, against a backend under mpirun.

    scripts/mpirun -n 4 .venv/bin/python tests/conformance/distributed_suite.py --backend weft

PyTorch's driver starts one process per rank for each test. Here mpirun starts the ranks, and each rank runs all tests
in the same order, each in a new process group. Rank 0 collects the results. All changes to the tests are in
distributed_patches.py.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
import unittest
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import distributed_patches as patches
import torch
import torch.distributed as dist
from distributed_report import Outcome, Report, combined, indented
from distributed_selection import REPRESENTATIVE
from distributed_watch import Terminal, Watch, restored_environment

import weft

BACKENDS = ("gloo", *patches.OURS)
MODULE = "torch.testing._internal.distributed.distributed_test"
WRONG_USE = 2


class Ranks:
    """Rank, size, and messages between the ranks that do not use the backend under test."""

    def __init__(self, world: weft.Communicator) -> None:
        self.rank, self.size = world.rank, world.size
        port = torch.zeros(1, dtype=torch.int64)
        if self.rank == 0:
            self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            port.fill_(self.store.port)
        with torch.no_grad():
            port = world.broadcast(port, root=0)
        if self.rank > 0:
            self.store = dist.TCPStore("127.0.0.1", int(port), is_master=False, wait_for_workers=False)

    def publish(self, topic: str, text: str = "") -> None:
        self.store.set(f"{topic}/{self.rank}", text)

    def read(self, topic: str, rank: int, timeout: timedelta) -> str:
        key = f"{topic}/{rank}"
        self.store.wait([key], timeout)
        return self.store.get(key).decode()

    def read_all(self, topic: str, timeout: timedelta) -> list[str]:
        return [self.read(topic, rank, timeout) for rank in range(self.size)]


class Driver:
    """Runs tests in order, each in a new process group."""

    def __init__(self, options: argparse.Namespace, ranks: Ranks, folder: Path, terminal: Terminal) -> None:
        self.options = options
        self.ranks = ranks
        self.folder = folder
        self.terminal = terminal
        self.report = Report(options.backend, ranks.size)
        self.watch = Watch(ranks.rank, options.timeout, terminal, self.report_hang)
        self.module, self.suite = load_suite(options.backend, ranks.size, folder)
        # Longer than the timeout of the watch, whose report is more detailed.
        self.patience = timedelta(seconds=options.timeout + 60)

    def run(self, tests: list[str]) -> None:
        for number, test in enumerate(tests):
            outcome = self.static_skip(test) or self.run_on_all_ranks(test, self.folder / str(number))
            if self.ranks.rank == 0:
                self.note(outcome)

    def static_skip(self, test: str) -> Outcome | None:
        """Returns a skip that was decided at import, which is the same on every rank; None otherwise."""
        function = getattr(self.suite, test)
        if not getattr(function, "__unittest_skip__", False):
            return None
        return Outcome(test, "skipped", function.__unittest_skip_why__)

    def run_on_all_ranks(self, test: str, folder: Path) -> Outcome:
        """Returns the combined outcome on rank 0, and the local outcome on other ranks."""
        print(f"==== {test}", flush=True)  # into this rank's log
        with self.watch.over(test), restored_environment():
            self.prepare(folder)
            start = time.monotonic()
            mine = self.run_here(test, folder)
            # No rank destroys its group while another may still be communicating.
            self.ranks.publish(f"{test}/ran")
            self.wait_for_others(f"{test}/ran")
            mine = self.leave_group(mine)
            mine.seconds = round(time.monotonic() - start, 2)
            self.ranks.publish(f"{test}/outcome", json.dumps(asdict(mine)))
            if self.ranks.rank > 0:
                return mine
            return combined([Outcome(**json.loads(text)) for text in self.wait_for_others(f"{test}/outcome")])

    def prepare(self, folder: Path) -> None:
        """Resets state as in a new process, and creates the folders for the tests' file barrier and stores."""
        dist.set_debug_level_from_env()  # restored_environment() does not reset the level in C++
        for name in ("barrier", "test_dir", "init_dir"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        os.environ["TEMP_DIR"] = str(folder)
        self.module.INIT_METHOD = f"file://{folder}/init_dir/shared_init_file"
        self.module.Barrier.barrier_id = 0

    def run_here(self, test: str, folder: Path) -> Outcome:
        try:
            case = self.suite(test)
            case.rank = self.ranks.rank
            case.file_name = str(folder / "store")
            self.join_group(case, test)
            with patched_names(self.options.backend, self.module, test):
                case._barrier()
                torch.testing._internal.common_utils.set_rng_seed()
                getattr(case, test)()
        except unittest.SkipTest as skip:
            return Outcome(test, "skipped", str(skip))
        except SystemExit as end:
            return self.read_exit(test, end)
        except Exception:
            return Outcome(test, "failed", traceback.format_exc())
        return Outcome(test, "passed")

    def join_group(self, case: Any, test: str) -> None:
        seconds = self.module.CUSTOM_PG_TIMEOUT.get(test, self.module.default_pg_timeout)
        dist.init_process_group(
            backend=self.options.backend,
            init_method=case.init_method,
            world_size=self.ranks.size,
            rank=self.ranks.rank,
            timeout=timedelta(seconds=seconds),
        )

    def read_exit(self, test: str, end: SystemExit) -> Outcome:
        """Converts an exit code, which PyTorch's tests use to report skips."""
        for skip in self.module.TEST_SKIPS.values():
            if end.code == skip.exit_code:
                return Outcome(test, "skipped", skip.message)
        if end.code in (None, 0):
            return Outcome(test, "passed")
        return Outcome(test, "failed", f"sys.exit({end.code!r})\n{traceback.format_exc()}")

    def leave_group(self, outcome: Outcome) -> Outcome:
        try:
            if dist.is_initialized():
                dist.destroy_process_group()
            gc.collect()  # DDP's reducers are in reference cycles and own their group
        except Exception:
            trace = f"while the process group was destroyed:\n{traceback.format_exc()}"
            return Outcome(outcome.name, "failed", "\n".join(filter(None, [outcome.reason, trace])))
        return outcome

    def wait_for_others(self, topic: str) -> list[str]:
        texts = []
        for rank in range(self.ranks.size):
            self.watch.waiting_for(f"rank {rank}")
            texts.append(self.ranks.read(topic, rank, self.patience))
        self.watch.waiting_for("")
        return texts

    def note(self, outcome: Outcome) -> None:
        self.report.tests.append(outcome)
        if outcome.result == "failed":
            self.terminal.say(f"FAIL {outcome.name} ({outcome.seconds} s)\n{indented(outcome.reason)}")
        elif outcome.result == "skipped":
            self.terminal.say(f"skip {outcome.name}: {outcome.reason}")
        elif self.options.verbose:
            self.terminal.say(f"pass {outcome.name} ({outcome.seconds} s)")

    def report_hang(self, test: str) -> None:
        """Records a test that hung and prints the report."""
        if self.ranks.rank > 0:
            return
        self.report.tests.append(Outcome(test, "failed", "hung"))
        self.conclude()

    def conclude(self) -> int:
        """Prints the summary on rank 0, writes the JSON file, and returns the exit status."""
        if self.options.json:
            self.report.write(self.options.json)
        self.terminal.say("skips by reason:")
        for reason, count in self.report.skips().most_common():
            self.terminal.say(f"{count:5} {reason}")
        self.terminal.say(f"backend {self.options.backend} on {self.ranks.size} ranks:")
        self.terminal.say(self.report.summary())
        if self.report.count("failed"):
            return 1
        if self.report.count("passed") < self.options.at_least:
            self.terminal.say(f"expected at least {self.options.at_least} tests to pass")
            return 1
        return 0


def patched_names(backend: str, module: ModuleType, test: str) -> contextlib.AbstractContextManager[None]:
    return patches.renamed(module, test) if backend in patches.OURS else contextlib.nullcontext()


def load_suite(backend: str, size: int, folder: Path) -> tuple[ModuleType, type]:
    """Returns PyTorch's module, which reads the environment during import, and the class of its tests."""
    os.environ.update(
        BACKEND=backend,
        WORLD_SIZE=str(size),
        TEMP_DIR=str(folder),
        INIT_METHOD=f"file://{folder}/init",  # the decorators of the module check the scheme
        TORCH_SHOW_CPP_STACKTRACES="1",  # like PyTorch's driver
        PYTORCH_PRINT_REPRO_ON_FAILURE="0",  # the suggested command does not exist here
    )
    if backend in patches.OURS:
        from torch.testing._internal.common_distributed import DistTestCases

        patches.prepare_features(backend, DistTestCases.backend_feature)
    module = importlib.import_module(MODULE)
    suite = type("DistributedSuite", (module.TestDistBackend, module.DistributedTest._DistTestBase), {})
    if backend in patches.OURS:
        patches.prepare_module(backend, module, suite)
    return module, suite


def selected(suite: type, select: str, only: str) -> list[str]:
    names = unittest.TestLoader().getTestCaseNames(suite)
    if select == "representative":
        unknown = set(REPRESENTATIVE) - set(names)
        if unknown:
            raise RuntimeError(f"no such tests in this PyTorch: {sorted(unknown)}")
        names = [name for name in names if name in REPRESENTATIVE]
    return [name for name in names if re.search(only, name)]


def shared_folder(ranks: Ranks) -> Path:
    """Returns the names of the tests, the same on all ranks."""
    if ranks.rank == 0:
        ranks.publish("folder", tempfile.mkdtemp(prefix="distributed_suite."))
    return Path(ranks.read("folder", 0, timedelta(seconds=60)))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", choices=BACKENDS, default=patches.WEFT)
    parser.add_argument("--select", choices=("all", "representative"), default="all")
    parser.add_argument("--only", metavar="PATTERN", default="", help="tests whose name matches a regular expression")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcome of each test")
    parser.add_argument("--ranks", type=int, metavar="N", help="fail unless there are N ranks")
    parser.add_argument("--at-least", type=int, metavar="N", default=1, help="fail unless N tests pass")
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        default=180.0,
        help="time limit per test; the whole run ends when it is exceeded",
    )
    parser.add_argument("--verbose", action="store_true", help="also list the tests that pass")
    parser.add_argument("--patches", action="store_true", help="print the changes for weft as Markdown and exit")
    return parser.parse_args()


@contextlib.contextmanager
def switch_for(backend: str, ranks: Ranks, folder: Path) -> Iterator[None]:
    """Starts a switch on rank 0 and publishes its address to all ranks, if the backend is `sml`."""
    if backend != patches.SML:
        yield
        return
    sys.path.append(str(Path(__file__).parents[1] / "python"))
    from sml.switches import Switch

    switch = Switch(folder) if ranks.rank == 0 else None
    if switch:
        ranks.publish("switch", str(switch.control))
    port = ranks.read("switch", 0, timedelta(seconds=60))
    os.environ.update(WEFT_SML_CONTROLLER_IP="127.0.0.1", WEFT_SML_CONTROLLER_PORT=port)
    try:
        yield
    finally:
        if switch:
            switch.kill()


def wrong_ranks(options: argparse.Namespace, world: weft.Communicator) -> bool:
    if world.size >= 2 and world.size == (options.ranks or world.size):
        return False
    if world.rank == 0:
        wanted = options.ranks or "at least 2"
        print(f"expected {wanted} ranks, got {world.size}: start with scripts/mpirun -n N", file=sys.stderr)
    return True


def main() -> int:
    options = parse_options()
    if options.patches:
        print(patches.markdown())
        return 0
    world = weft.world()
    if wrong_ranks(options, world):
        return WRONG_USE
    ranks = Ranks(world)
    folder = shared_folder(ranks)
    terminal = Terminal(folder / f"rank{ranks.rank}.log")
    if ranks.rank == 0:
        terminal.say(f"output of the tests: {folder}/rank*.log")
    driver = Driver(options, ranks, folder, terminal)
    with switch_for(options.backend, ranks, folder):
        driver.run(selected(driver.suite, options.select, options.only))
    if ranks.rank == 0:
        ranks.publish("status", str(driver.conclude()))
    terminal.restore()
    return leave(ranks, folder, driver.patience)


def leave(ranks: Ranks, folder: Path, patience: timedelta) -> int:
    """Returns the status, the same on all ranks. Rank 0 owns the store and exits last. Failures keep the logs."""
    status = int(ranks.read("status", 0, patience))
    ranks.publish("done")
    if ranks.rank == 0:
        ranks.read_all("done", patience)
        if status == 0:
            shutil.rmtree(folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
