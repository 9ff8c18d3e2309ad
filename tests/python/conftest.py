"""Runs pytest under mpirun: rank 0 prints the report, every rank prints its failures, and no rank waits forever."""

import os
import sys
import time

import pytest
import torch

import weft

# Set by Open MPI, by MPICH's Hydra and srun with PMI, and by srun.
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")

# mpirun ends the whole job when one rank fails. The delay lets rank 0 print its report first.
REPORT_SECONDS = 2.0


def launcher_number(names: tuple[str, ...], default: int) -> int:
    return next((int(os.environ[name]) for name in names if name in os.environ), default)


RANK = launcher_number(RANK_VARIABLES, 0)
SIZE = launcher_number(SIZE_VARIABLES, 1)


class FailurePrinter:
    """Prints failures immediately, with the rank in each line, because the session may not finish."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._print(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._print(report)

    def pytest_internalerror(self, excrepr: object) -> None:
        print_with_rank(str(excrepr))

    def _print(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            print_with_rank(f"{report.nodeid} failed\n{report.longreprtext}")


def print_with_rank(text: str) -> None:
    sys.stderr.write("".join(f"[rank {RANK}] {line}\n" for line in text.splitlines()))
    sys.stderr.flush()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    # After a failure on one rank the ranks are out of step, so later tests would hang.
    if SIZE > 1 and not config.option.maxfail:
        config.option.maxfail = 1
    if RANK > 0:
        # Silenced, not removed: pytest's assertion messages need the terminal reporter.
        config.get_terminal_writer()._file = open(os.devnull, "w")
        config.pluginmanager.register(FailurePrinter(), "failure-printer")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[EXIT_STATUS] = int(exitstatus)


EXIT_STATUS = pytest.StashKey[int]()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    status = config.stash.get(EXIT_STATUS, 0)
    if SIZE == 1 or status == 0:
        return
    # Not sys.exit: MPI_Finalize in an exit handler would wait for ranks that wait for this one.
    if RANK > 0:
        time.sleep(REPORT_SECONDS)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


@pytest.fixture
def rank() -> int:
    return RANK


@pytest.fixture
def size() -> int:
    return SIZE


@pytest.fixture(scope="session")
def comm() -> weft.Communicator:
    return weft.world()


@pytest.fixture
def works_afterwards(comm: weft.Communicator):
    """Checks that communication still works after a test that causes an error."""
    yield
    weft.reset_tape()
    assert comm.all_reduce(torch.ones(1)).item() == comm.size
