"""Communicators (creation, pickling, mpi4py), meshes, options, the doctor, and deprecated names."""

import copy
import importlib
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
import torch

import weft

ROOT = Path(__file__).parents[3]


def members(comm: weft.Communicator) -> list[int]:
    return comm.all_gather(torch.tensor([weft.world().rank])).tolist()


def test_world_has_rank_size_and_name(comm: weft.Communicator, rank: int, size: int) -> None:
    assert (comm.rank, comm.size, comm.name) == (rank, size, "world")
    assert weft.world() is comm
    assert repr(comm) == f"Communicator('world', rank {rank} of {size})"
    comm.barrier()


def test_dup_returns_a_different_communicator(comm: weft.Communicator) -> None:
    other = comm.dup()
    assert other != comm and (other.rank, other.size) == (comm.rank, comm.size)
    assert len({comm, other, weft.world()}) == 2


def test_split_by_color_and_key(comm: weft.Communicator) -> None:
    parity = comm.split(comm.rank % 2)
    assert members(parity) == list(range(comm.rank % 2, comm.size, 2))
    backwards = comm.split(0, -comm.rank)
    assert members(backwards) == list(reversed(range(comm.size)))


def test_split_with_color_none_excludes_the_rank(comm: weft.Communicator) -> None:
    others = comm.split(None) if comm.rank == 0 else comm.split(3)
    if comm.rank == 0:
        assert others is None
    else:
        assert others is not None and members(others) == list(range(1, comm.size))
    with pytest.raises(ValueError, match="color of at least 0"):
        comm.split(-4)


def test_split_shared_has_the_ranks_of_this_machine(comm: weft.Communicator) -> None:
    assert comm.split_shared().size == comm.size


def test_cart_has_coordinates_and_rejects_invalid_grids(comm: weft.Communicator) -> None:
    assert comm.grid is None
    with pytest.raises(RuntimeError, match="has no coordinates"):
        _ = comm.coordinates
    grid = comm.cart([1, comm.size], [False, True])
    assert grid.grid == weft.CartTopology([1, comm.size], [False, True], [0, grid.rank])
    assert grid.coordinates == [0, grid.rank]
    for extents in ([comm.size + 1], [0], [-1, -comm.size], []):
        if comm.size == 1 and extents == []:
            continue
        with pytest.raises(ValueError, match=f"for {comm.size} ranks"):
            comm.cart(extents)


def test_gradients_flow_through_nested_groups(comm: weft.Communicator) -> None:
    part = comm.split(comm.rank % 2)
    x = torch.full((2,), 2.0, requires_grad=True)
    y = comm.all_reduce(part.all_reduce(x).square())
    weft.backward(y.sum())
    torch.testing.assert_close(x.grad, torch.full((2,), 2.0 * part.size * 2 * part.size * comm.size))


def test_only_world_can_be_pickled(comm: weft.Communicator) -> None:
    assert pickle.loads(pickle.dumps(comm)) is comm
    module = torch.nn.Linear(1, 1)
    module.comm = comm.dup()
    assert copy.deepcopy(module).comm is module.comm
    assert copy.copy(comm) is comm
    with pytest.raises(TypeError, match=r"cannot be pickled.*weft\.world\(\)"):
        pickle.dumps(module.comm)


def test_exceptions_can_be_pickled() -> None:
    lost = pickle.loads(pickle.dumps(weft.PeerLost("weft.PeerLost: rank 2 failed", 2)))
    assert isinstance(lost, weft.PeerLost) and lost.rank == 2
    late = pickle.loads(pickle.dumps(weft.TimeoutError("weft: no answer")))
    assert isinstance(late, weft.TimeoutError) and str(late) == "weft: no answer"


def test_from_mpi4py_keeps_rank_order(comm: weft.Communicator) -> None:
    if os.environ.get("WEFT_MPI") == "mpich":
        pytest.skip("mpi4py's wheel speaks MPICH's own ABI, not the standard one")
    MPI = pytest.importorskip("mpi4py.MPI")
    theirs = MPI.COMM_WORLD.Split(0, -comm.rank)
    ours = weft.from_mpi4py(theirs)
    assert (ours.rank, ours.size) == (theirs.rank, theirs.size)
    assert members(ours) == list(reversed(range(comm.size)))
    assert theirs.allreduce(1) == comm.size
    with pytest.raises((RuntimeError, ValueError)):
        weft.from_mpi4py(MPI.COMM_NULL)


def test_importing_does_not_start_mpi() -> None:
    program = (
        "import weft, mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; assert not MPI.Is_initialized()"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "PRTE", "PMIX"))}
    assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == 0


def test_mesh_axes_are_communicators(comm: weft.Communicator) -> None:
    mesh = weft.Mesh(data=comm.size, depth=1)
    assert dict(mesh.shape) == {"data": comm.size, "depth": 1}
    assert dict(mesh.coordinates) == {"data": comm.rank, "depth": 0}
    assert members(mesh["data"]) == list(range(comm.size)) and mesh["depth"].size == 1
    assert f"data={comm.size}, depth=1" in repr(mesh)
    with pytest.raises(KeyError, match="unknown axis 'width'; the axes are data, depth"):
        mesh["width"]


def test_mesh_axes_combine_into_one_communicator(comm: weft.Communicator) -> None:
    if comm.size != 4:
        return
    mesh = weft.Mesh(data=2, height=1, width=2)
    assert dict(mesh.coordinates) == {"data": comm.rank // 2, "height": 0, "width": comm.rank % 2}
    assert members(mesh["data"]) == [comm.rank % 2, comm.rank % 2 + 2]
    assert members(mesh["width"]) == [comm.rank // 2 * 2, comm.rank // 2 * 2 + 1]
    assert members(mesh.comm("height", "width")) == members(mesh["width"])
    assert members(mesh.comm("width", "data")) == [0, 2, 1, 3]
    assert mesh.comm("width", "data") is mesh.comm("width", "data")
    inner = weft.Mesh(comm=mesh["width"], x=2)
    assert members(inner["x"]) == members(mesh["width"])


def test_mesh_of_the_wrong_size_raises(comm: weft.Communicator) -> None:
    n = comm.size + 1
    with pytest.raises(ValueError, match=f"data={n} needs {n} ranks, but 'world' has {comm.size}.*mpirun -n {n}"):
        weft.Mesh(data=n)
    with pytest.raises(ValueError, match="at least 1 for axis 'data', got 0"):
        weft.Mesh(data=0)


def test_configure_changes_only_given_options() -> None:
    before = weft.configure(timeout=50, debug=True)
    try:
        now = weft.options()
        assert (now.timeout, now.debug, now.max_count) == (50, True, before.max_count)
        assert now.warn_after <= 25
        weft.configure(weft.Options(cuda_aware=False))
        assert weft.options() == weft.Options(cuda_aware=False, timeout=50)
        with pytest.raises(ValueError, match="greater than 0"):
            weft.configure(timeout=-1)
        with pytest.raises(TypeError, match="tmeout"):
            weft.configure(tmeout=1)
    finally:
        weft.configure(before)
    assert weft.options() == before


def test_version_matches_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert weft.__version__ == project["version"]


def test_doctor_reports_ranks_versions_and_options(comm: weft.Communicator) -> None:
    report = weft.doctor()
    assert report.ranks == comm.size and len(report.hosts) == 1
    assert report.thread_level == "MPI_THREAD_MULTIPLE" and report.launcher is not None
    text = str(report)
    for part in (weft.__version__, torch.__version__, report.mpi_library, "MPI standard", "timeout=", "CUDA-aware"):
        assert part in text


def test_importing_the_module_keeps_the_function_doctor() -> None:
    doctor = weft.doctor
    with pytest.warns(DeprecationWarning, match=r"weft\.doctor is now weft\.tools\.doctor"):
        sys.modules.pop("weft.doctor", None)
        importlib.import_module("weft.doctor")
    assert weft.doctor is doctor and callable(doctor)


@pytest.mark.parametrize(
    ("package", "name", "renamed"),
    [
        ("weft", "Report", "weft.tools.doctor.DoctorReport"),
        ("weft", "Grid", "weft.communicator.CartTopology"),
        ("weft.spatial", "Grid", "weft.spatial.RankGrid"),
    ],
)
def test_renamed_classes_keep_their_old_names(package: str, name: str, renamed: str) -> None:
    with pytest.warns(DeprecationWarning, match=re.escape(renamed)):
        found = getattr(importlib.import_module(package), name)
    module, _, attribute = renamed.rpartition(".")
    assert found is getattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize("tool", ["report", "compare", "tensorboard", "sml_demo"])
def test_moved_modules_keep_their_old_names(tool: str) -> None:
    sys.modules.pop(f"weft.{tool}", None)
    with pytest.warns(DeprecationWarning, match=rf"weft\.{tool} is now weft\.tools\.{tool}"):
        moved = importlib.import_module(f"weft.{tool}")
    assert moved is importlib.import_module(f"weft.tools.{tool}")
