"""Describes the installation and finds problems in it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import torch

from .. import _interop, _library, _objects
from .._options import Options, options
from ..communicator import world
from ..version import __version__

# Variables that launchers set for each rank.
_LAUNCHERS = {
    "OMPI_COMM_WORLD_SIZE": "Open MPI's mpirun",
    "PMIX_RANK": "a PMIx launcher",
    "PMI_SIZE": "MPICH's mpirun or srun with PMI",
    "SLURM_NTASKS": "Slurm",
}


@dataclass(frozen=True)
class Problem:
    """A problem and its remedy."""

    what: str
    remedy: str


@dataclass(frozen=True)
class DoctorReport:
    """Description of the installation, printable. Node-specific fields such as ``cores`` are those of this rank."""

    weft: str
    library: str
    torch: str
    mpi_library: str
    mpi_standard: str
    thread_level: str
    cuda_aware: str
    launcher: str | None
    hosts: dict[str, int]
    cores: int
    memory: str
    options: Options
    problems: list[Problem]
    notes: list[str] = field(default_factory=list)

    @property
    def ranks(self) -> int:
        """Number of ranks on all hosts."""
        return sum(self.hosts.values())

    def __str__(self) -> str:
        hosts = ", ".join(f"{host}: {count}" for host, count in self.hosts.items())
        lines = [
            f"weft          {self.weft} ({self.library})",
            f"torch         {self.torch}",
            f"MPI library   {self.mpi_library}",
            f"MPI standard  {self.mpi_standard}",
            f"thread level  {self.thread_level}",
            f"CUDA-aware    {self.cuda_aware}",
            f"launcher      {self.launcher or 'none detected'}",
            f"ranks         {self.ranks} ({hosts}), {self.cores} cores on this node",
            f"memory        {self.memory}",
            f"options       {', '.join(f'{name}={value}' for name, value in vars(self.options).items())}",
        ]
        lines += [f"note          {note}" for note in self.notes]
        lines += [f"problem       {problem.what}\n              -> {problem.remedy}" for problem in self.problems]
        return "\n".join(lines) + ("" if self.problems else "\nno problems found")


def _memory() -> tuple[float, float]:
    """Returns available and total memory of this node in GB; 0 if unknown."""
    try:
        with open("/proc/meminfo") as lines:
            kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    except (OSError, ValueError, IndexError):
        kilobytes = {}
    return kilobytes.get("MemAvailable", 0) / 2**20, kilobytes.get("MemTotal", 0) / 2**20


def _memory_problem(available: float, whole: float) -> Problem | None:
    if whole == 0 or available > 0.05 * whole:
        return None
    return Problem(f"only {available:.1f} of {whole:.1f} GB of memory are free", "stop other processes on this node")


def _launcher() -> str | None:
    return next((name for variable, name in _LAUNCHERS.items() if variable in os.environ), None)


def _count(texts: list[str]) -> dict[str, int]:
    return {text: texts.count(text) for text in dict.fromkeys(texts)}


def _thread_problem(level: str) -> Problem | None:
    if level == "MPI_THREAD_MULTIPLE":
        return None
    return Problem(
        f"MPI provides {level}: weft's own threads (progress, process groups) cannot communicate",
        "call weft.world() before other code initializes MPI, or request MPI_THREAD_MULTIPLE there",
    )


def _launcher_problem(launcher: str | None, ranks: int) -> Problem | None:
    if launcher is not None and ranks == 1 and int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1")) > 1:
        return Problem(
            "the launcher started several ranks, but each rank sees only itself",
            "use the mpirun of the MPI library above; the launcher of another MPI cannot connect its ranks",
        )
    return None


def _thread_count_problem(ranks_here: int, cores: int) -> Problem | None:
    threads = torch.get_num_threads()
    if ranks_here > 1 and ranks_here * threads > cores and threads > 1:
        return Problem(
            f"{ranks_here} ranks with {threads} threads each share {cores} cores and slow each other down",
            f"set OMP_NUM_THREADS={max(1, cores // ranks_here)}",
        )
    return None


def _notes(launcher: str | None, ranks: int, ranks_here: int, cores: int) -> list[str]:
    """Returns remarks that are not problems."""
    notes = []
    if launcher is None and ranks == 1:
        notes.append("one rank and no launcher; for more ranks: mpirun -n 2 python -m weft.tools.doctor")
    if ranks_here > cores:
        notes.append(
            f"{ranks_here} ranks share {cores} cores: fine for tests; for speed, use at least one core per rank"
        )
    return notes


def _mpi4py_problem() -> Problem | None:
    theirs = _interop.mpi4py_libraries()
    ours = _interop.mpi_libraries()
    if theirs is None or not ours or theirs <= ours:
        return None
    return Problem(
        f"mpi4py uses a different MPI library: {', '.join(sorted(theirs))} (weft: {', '.join(sorted(ours))})",
        "do not import mpi4py in the same program, or set MPI4PY_LIBMPI to weft's library",
    )


def _cuda_problem(report: str) -> Problem | None:
    if not torch.cuda.is_available() or report.startswith("yes"):
        return None
    return Problem(f"CUDA tensors are staged through host memory ({report})", "use an MPI library built with CUDA")


def doctor() -> DoctorReport:
    """Collective. Checks MPI, torch, the ranks and the options, and returns a report with the problems found."""
    comm = world()
    library, standard, level, host, cuda = torch.ops.weft.facts()
    hosts = _objects.all_gather(comm, host)
    cores = len(os.sched_getaffinity(0))
    launcher = _launcher()
    available, whole = _memory()
    found = [
        _memory_problem(available, whole),
        _thread_problem(level),
        _launcher_problem(launcher, comm.size),
        _thread_count_problem(hosts.count(host), cores),
        _mpi4py_problem(),
        _cuda_problem(cuda),
    ]
    return DoctorReport(
        weft=__version__,
        library=str(_library.PATH),
        torch=torch.__version__,
        mpi_library=library.splitlines()[0].rstrip(", "),
        mpi_standard=standard,
        thread_level=level,
        cuda_aware=cuda,
        launcher=launcher,
        hosts=_count(hosts),
        cores=cores,
        memory=f"{available:.1f} of {whole:.1f} GB available on this node" if whole else "unknown",
        options=options(),
        problems=[problem for problem in found if problem is not None],
        notes=_notes(launcher, comm.size, hosts.count(host), cores),
    )
