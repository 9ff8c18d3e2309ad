"""All changes to PyTorch's distributed tests that let them run against ``weft``, as tables.

gloo runs unpatched. ``markdown()`` prints the tables for the documentation. If PyTorch changes the limit of a test, the
driver fails instead of skipping the test silently.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest import mock

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

WEFT = "weft"
SML = "sml"  # runs the same tests as weft, its fallback
OURS = (WEFT, SML)


@dataclass(frozen=True)
class NameList:
    """A list of backend names in PyTorch's tests to which ``weft`` is added."""

    where: str
    why: str


@dataclass(frozen=True)
class Opening:
    """Tests that PyTorch limits to certain backend names. The skip whose reason starts with ``limit`` is removed."""

    limit: str
    why: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Renaming:
    """A backend name that the listed tests see instead of ``weft``, and the place where they see it."""

    where: str
    why: str
    tests: tuple[str, ...]


# Features in DistTestCases.backend_feature: those of gloo, and "plugin", which makes require_backend_is_available()
# accept a name that is not built in.
FEATURES = ("gpu", "cuda", "ddp", "subgroup", "plugin")

# Lists of the module. They make the tests stricter: the operations must appear in the profiler.
PROFILED = (
    "PROFILING_SUPPORTED_BACKENDS",
    "CUDA_PROFILING_SUPPORTED_BACKENDS",
    "SEND_RECV_PROFILING_SUPPORTED_BACKENDS",
)

NAME_LISTS = (
    NameList(
        "`DistTestCases.backend_feature[...]` of " + ", ".join(f"`{name}`" for name in FEATURES),
        "PyTorch's table of features; gloo has the first four, and backends that are not built in need `plugin`",
    ),
    NameList(
        ", ".join(f"`{name}`" for name in PROFILED),
        "stricter: the profiler must show `weft:all_reduce` etc. with shapes",
    ),
)

OPENINGS = (
    Opening(
        limit="Only MPI supports CPU all_to_all_single",
        why="PyTorch knows one MPI backend, the built-in `mpi`",
        tests=(
            "test_all_to_all_single_equal_split",
            "test_all_to_all_single_equal_split_complex",
            "test_all_to_all_single_equal_split_full_group",
            "test_all_to_all_single_equal_split_group",
            "test_all_to_all_single_unequal_split",
            "test_all_to_all_single_unequal_split_complex",
            "test_all_to_all_single_unequal_split_full_group",
            "test_all_to_all_single_unequal_split_group",
        ),
    ),
    Opening(
        limit="Only MPI supports all_to_all",
        why="as above",
        tests=(
            "test_all_to_all",
            "test_all_to_all_complex",
            "test_all_to_all_full_group",
            "test_all_to_all_group",
        ),
    ),
    Opening(
        limit="Only gloo backend supports timeouts",
        why="weft's waits time out too",
        tests=(
            "test_barrier_timeout_full_group",
            "test_barrier_timeout_global",
            "test_barrier_timeout_group",
        ),
    ),
    Opening(
        limit="GLOO Batch Send Recv CPU",
        why="the tests do not depend on gloo",
        tests=("test_batch_isend_irecv_gloo", "test_batch_isend_irecv_gloo_tags"),
    ),
    Opening(
        limit="NCCL Batch Send Recv Only",
        why="the only nccl test that needs no GPU: it checks an argument",
        tests=("test_batch_isend_irecv_op_list_err",),
    ),
    Opening(
        limit="Only Gloo backend supports sparse all reduce",
        why="DDP needs it for sparse gradients",
        tests=("test_sparse_all_reduce_sum", "test_sparse_all_reduce_sum_cuda"),
    ),
    Opening(
        limit="Only Gloo and NCCL backends will have CUDA allReduce tested",
        why="like gloo: runs if there are GPUs",
        tests=("test_all_reduce_sum_cuda", "test_all_reduce_sum_cuda_async", "test_all_reduce_sum_cuda_complex"),
    ),
    Opening(
        limit="Only Gloo and Nccl backends support CUDA allReduce",
        why="like gloo: runs if there are GPUs",
        tests=("test_broadcast_cuda",),
    ),
    Opening(
        limit="Only Nccl & Gloo backend support DistributedDataParallel",
        why="like gloo: runs if there are GPUs",
        tests=("test_static_graph_multi_forward", "test_sync_bn_logged"),
    ),
    Opening(
        limit="get_future is only supported on mpi, nccl and gloo",
        why="DDP needs it from any backend",
        tests=(
            "test_accumulate_gradients_no_sync",
            "test_accumulate_gradients_no_sync_allreduce_hook",
            "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
            "test_accumulate_gradients_no_sync_grad_is_view",
            "test_get_future",
        ),
    ),
    Opening(
        limit="Test requires backend weft to be one of {'gloo'}",
        why="the tests do not depend on gloo",
        tests=(
            "test_all_reduce_coalesced_full_group_max",
            "test_all_reduce_coalesced_full_group_min",
            "test_all_reduce_coalesced_full_group_product",
            "test_all_reduce_coalesced_full_group_sum",
            "test_all_reduce_coalesced_group_max",
            "test_all_reduce_coalesced_group_min",
            "test_all_reduce_coalesced_group_product",
            "test_all_reduce_coalesced_group_sum",
            "test_all_reduce_coalesced_max",
            "test_all_reduce_coalesced_min",
            "test_all_reduce_coalesced_product",
            "test_all_reduce_coalesced_sum",
            "test_grads_same_across_ranks_with_no_sync",
            "test_monitored_barrier_failure_order",
            "test_monitored_barrier_gloo",
            "test_monitored_barrier_gloo_rank_0_timeout",
            "test_monitored_barrier_gloo_subgroup",
            "test_monitored_barrier_wait_all_ranks",
            "test_scatter_object_list",
        ),
    ),
)

# The tests create a CPU model only `if BACKEND == "mpi" or BACKEND == "gloo"`.
MODULE_NAME = Renaming(
    where="the test module's `BACKEND` is `gloo` (the process group remains weft's)",
    why="the tests create their CPU model only for the names `mpi` and `gloo`",
    tests=(
        "test_accumulate_gradients_no_sync",
        "test_accumulate_gradients_no_sync_allreduce_hook",
        "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
        "test_accumulate_gradients_no_sync_grad_is_view",
    ),
)

# dist.monitored_barrier rejects other names before it calls the backend, whose interface has the operation.
BARRIER_NAME = Renaming(
    where="`dist.monitored_barrier` sees `gloo` from `get_backend` (the process group remains weft's)",
    why="it rejects other names before it calls `monitoredBarrier` of the backend",
    tests=(
        "test_monitored_barrier_failure_order",
        "test_monitored_barrier_gloo",
        "test_monitored_barrier_gloo_subgroup",
        "test_monitored_barrier_wait_all_ranks",
    ),
)

# ProcessGroup::getBackendName(), which DDP logs, returns built-in names only.
LOGGED_NAME = Renaming(
    where="`dist.get_backend` returns `custom`",
    why="the test compares it with DDP's log, which contains `custom` for every backend that is not built in",
    tests=("test_ddp_logging_data_cpu",),
)

RENAMINGS = (MODULE_NAME, BARRIER_NAME, LOGGED_NAME)


def prepare_features(backend: str, features: dict[str, set[str]]) -> None:
    """Adds the features. Call it before the import of PyTorch's test module, whose decorators read the table."""
    for name in FEATURES:
        features[name].add(backend)


def prepare_module(backend: str, module: ModuleType, suite: type) -> None:
    """Extends the lists of the module and removes the limits of tests. Call it after the import. `sml` is not added to
    the profiler lists, because operations of its fallback appear under the name of the fallback."""
    for name in PROFILED if backend == WEFT else ():
        getattr(module, name).append(backend)
    for opening in OPENINGS:
        for test in opening.tests:
            open_test(suite, test, opening.limit.replace(f"backend {WEFT} ", f"backend {backend} "))


def open_test(suite: type, test: str, limit: str) -> None:
    function = getattr(suite, test)
    reason = getattr(function, "__unittest_skip_why__", None)
    if not getattr(function, "__unittest_skip__", False) or not str(reason).startswith(limit):
        raise RuntimeError(f"{test}: expected a skip with '{limit}', got {reason!r}; update OPENINGS")
    function.__unittest_skip__ = False


@contextlib.contextmanager
def renamed(module: ModuleType, test: str) -> Iterator[None]:
    """Replaces the backend names that one test sees."""
    with contextlib.ExitStack() as stack:
        if test in MODULE_NAME.tests:
            stack.enter_context(mock.patch.object(module, "BACKEND", "gloo"))
        if test in BARRIER_NAME.tests:
            stack.enter_context(renamed_backend(c10d, "gloo"))
        if test in LOGGED_NAME.tests:
            stack.enter_context(renamed_backend(dist, "custom"))
        yield


def renamed_backend(module: ModuleType, name: str) -> contextlib.AbstractContextManager[Any]:
    """Patches ``get_backend`` of ``module``."""
    original = c10d.get_backend

    def get_backend(group: dist.ProcessGroup | None = None) -> str:
        found = original(group)
        return name if found in OURS else found

    return mock.patch.object(module, "get_backend", get_backend)


def markdown() -> str:
    """Returns the changes as two Markdown tables."""
    lines = ["| changed for weft | why |", "|---|---|"]
    lines += [f"| {row.where}: + `weft` | {row.why} |" for row in NAME_LISTS]
    lines += [f"| {row.where}, during {spelled(row.tests)} | {row.why} |" for row in RENAMINGS]
    lines += ["", "| PyTorch's limit, lifted | tests | why |", "|---|---|---|"]
    lines += [f"| {row.limit} | {len(row.tests)}: {spelled(row.tests)} | {row.why} |" for row in OPENINGS]
    return "\n".join(lines)


def spelled(tests: tuple[str, ...]) -> str:
    return ", ".join(f"`{test.removeprefix('test_')}`" for test in tests)
