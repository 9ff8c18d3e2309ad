"""Invalid calls raise an exception on every rank that names each rank's call; communication works afterwards."""

import builtins

import pytest
import torch

import weft

pytestmark = pytest.mark.usefixtures("works_afterwards")


several = pytest.mark.skipif("weft.world().size == 1")
TYPE = RuntimeError  # a single rank gets the original exception, several ranks a Disagreement


@several
def test_different_shapes_raise_on_all_ranks(comm: weft.Communicator) -> None:
    with pytest.raises(weft.Disagreement) as told:
        comm.all_reduce(torch.ones(2 if comm.rank == 0 else 3))
    text = str(told.value)
    assert "rank 0: all_reduce(Float[2], 'sum')" in text and "errors_test.py" in text
    assert "rank 1" in text and "all_reduce(Float[3], 'sum')" in text


@several
def test_different_dtypes_raise_on_all_ranks(comm: weft.Communicator) -> None:
    with pytest.raises(weft.Disagreement, match=r"rank 0: broadcast\(Double"):
        comm.broadcast(torch.ones(2, dtype=torch.float64 if comm.rank == 0 else torch.float32))


@several
def test_different_operations_raise_on_all_ranks(comm: weft.Communicator) -> None:
    with pytest.raises(weft.Disagreement, match=r"(?s)rank 0: all_gather.*scan"):
        (comm.all_gather if comm.rank == 0 else comm.scan)(torch.ones(2))


@several
@pytest.mark.parametrize("name", ["all_reduce", "reduce", "reduce_scatter", "scan", "exscan"])
def test_different_reductions_raise_on_all_ranks(name: str, comm: weft.Communicator) -> None:
    with pytest.raises(weft.Disagreement, match=r"(?s)'sum'.*'max'|'max'.*'sum'"):
        getattr(comm, name)(torch.ones(2, dtype=torch.int64), "sum" if comm.rank == 0 else "max")


@several
@pytest.mark.parametrize("name", ["broadcast", "reduce", "gather", "scatter"])
def test_different_roots_raise_on_all_ranks(name: str, comm: weft.Communicator) -> None:
    with pytest.raises(weft.Disagreement, match=r"(?s)root=0.*root=1"):
        getattr(comm, name)(torch.ones(2), root=1 if comm.rank == 1 else 0)


@several
def test_different_dimensions_raise_on_all_ranks(comm: weft.Communicator) -> None:
    with pytest.raises(weft.Disagreement, match=r"(?s)dim=0.*dim=1"):
        comm.all_gather(torch.ones(2, 2), dim=1 if comm.rank == 1 else 0)


@several
def test_different_sizes_in_other_dimensions_raise_on_all_ranks(comm: weft.Communicator) -> None:
    with pytest.raises(weft.Disagreement, match="all_gather"):
        comm.all_gather(torch.ones(2, 3 if comm.rank == 0 else 4))


@several
def test_incompatible_pieces_raise_on_all_ranks(comm: weft.Communicator) -> None:
    sizes = [2, *[1] * (comm.size - 1)] if comm.rank == 0 else [1] * (comm.size - 1) + [2]
    with pytest.raises(weft.Disagreement, match="expected equal sizes"):
        comm.all_to_all(torch.ones(comm.size + 1, 2), 0, 1, sizes)


@several
def test_different_grad_modes_raise_on_all_ranks(comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    with torch.set_grad_enabled(comm.rank != 0), pytest.raises(weft.Disagreement, match="under no_grad"):
        comm.all_reduce(x)


@several
def test_invalid_argument_on_one_rank_raises_on_all_ranks(comm: weft.Communicator) -> None:
    with pytest.raises(weft.Disagreement, match=r"(?s)rank 1: all_reduce failed.*'product'"):
        comm.all_reduce(torch.ones(2), "product" if comm.rank == 1 else "sum")


@several
def test_reductions_without_mpi_ops_check_agreement(comm: weft.Communicator) -> None:
    for name in ("reduce", "reduce_scatter", "scan"):
        with pytest.raises(weft.Disagreement):
            getattr(comm, name)(torch.ones(4), "max" if comm.rank == 0 else "sum")
        weft.reset_tape()


def test_unknown_reduction_raises(comm: weft.Communicator) -> None:
    for name in ("all_reduce", "reduce", "reduce_scatter", "scan", "exscan", "iall_reduce"):
        with pytest.raises(TYPE, match=r"unknown reduction 'total'; expected sum, mean, prod"):
            getattr(comm, name)(torch.ones(2), "total")


@pytest.mark.parametrize("root", [-1, 99])
@pytest.mark.parametrize("name", ["broadcast", "reduce", "gather", "scatter", "ibroadcast"])
def test_root_out_of_range_raises(name: str, root: int, comm: weft.Communicator) -> None:
    with pytest.raises(TYPE, match=rf"root to be a rank in \[0, {comm.size - 1}\], got {root}"):
        getattr(comm, name)(torch.ones(2), root=root)


@pytest.mark.parametrize("dim", [2, -3])
@pytest.mark.parametrize("name", ["all_gather", "gather", "reduce_scatter", "iall_gather"])
def test_dimension_out_of_range_raises(name: str, dim: int, comm: weft.Communicator) -> None:
    with pytest.raises((RuntimeError, IndexError), match=rf"expected a dimension in \[-2, 1\].*got {dim}"):
        getattr(comm, name)(torch.ones(2, 2), dim=dim)


@pytest.mark.parametrize("sizes", ["wrong count", "wrong sum", "negative"])
def test_invalid_sizes_raise(sizes: str, comm: weft.Communicator) -> None:
    n = comm.size
    given, text = {
        "wrong count": ([1] * (n + 1), "one size per rank"),
        "wrong sum": ([5] * n, f"add up to {n}"),
        "negative": ([-1] * n, "at least 0"),
    }[sizes]
    for run in (
        lambda x: comm.reduce_scatter(x, sizes=given),
        lambda x: comm.all_to_all(x, split_sizes=given),
        lambda x: comm.scatter(x, sizes=given),
    ):
        with pytest.raises(TYPE, match=text):
            run(torch.ones(n))


@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "all_gather", "scan", "all_to_all", "reduce_scatter"])
def test_sparse_and_quantized_tensors_raise(name: str, comm: weft.Communicator) -> None:
    operation = getattr(comm, name)
    with pytest.raises((RuntimeError, NotImplementedError), match=r"(?i)sparse"):
        operation(torch.eye(2).to_sparse())
    with pytest.raises((RuntimeError, NotImplementedError), match=r"(?i)quint8|quantized"):
        operation(torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8))


def test_reduction_unsupported_by_the_dtype_raises(comm: weft.Communicator) -> None:
    with pytest.raises(TYPE, match="'mean' is not defined on int64; convert to a floating type"):
        comm.all_reduce(torch.ones(2, dtype=torch.int64), "mean")
    with pytest.raises(TYPE, match="'max' is not defined on complex"):
        comm.all_reduce(torch.ones(2, dtype=torch.complex64), "max")
    with pytest.raises(TYPE, match="'band' is not defined on float32"):
        comm.all_reduce(torch.ones(2), "band")


def test_list_instead_of_a_tensor_raises(comm: weft.Communicator) -> None:
    with pytest.raises((TypeError, RuntimeError)):
        comm.all_reduce([1.0, 2.0])  # type: ignore[arg-type]


def test_freed_communicator_raises(comm: weft.Communicator) -> None:
    other = comm.dup()
    assert other.all_reduce(torch.ones(1)).item() == comm.size
    other.free()
    assert other.freed and "freed" in repr(other)
    one = torch.ones(1)
    for run in (lambda: other.all_reduce(one), lambda: other.send(one, 0), other.barrier, other.dup):
        with pytest.raises(RuntimeError, match="was freed"):
            run()


def test_number_of_a_deleted_communicator_raises(comm: weft.Communicator) -> None:
    number = comm.dup()._id
    with pytest.raises((RuntimeError, ValueError), match=f"no communicator with number {number}"):
        torch.ops.weft.all_reduce(torch.ones(1), "sum", number)


def test_backward_works_through_an_unreferenced_communicator(comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    loss = comm.dup().all_reduce(x).sum()
    weft.backward(loss)
    assert x.grad is not None and x.grad.tolist() == [comm.size] * 2


def test_loss_of_several_elements_raises(comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="2 elements; expected one element"):
        weft.backward(comm.all_reduce(x))


def test_operations_without_a_wrapper_raise_typed_exceptions(comm: weft.Communicator) -> None:
    spare = comm.dup()
    before = weft.configure(timeout=0.2)
    try:
        with pytest.raises(weft.TimeoutError) as raised:
            torch.ops.weft.recv(None, comm.rank, 0, spare._id)
        assert isinstance(raised.value, builtins.TimeoutError) and isinstance(raised.value, RuntimeError)
        assert raised.value.__context__ is None
    finally:
        weft.configure(before)
    with pytest.raises(ValueError, match="no communicator with number 1000000"):
        torch.ops.weft.barrier(10**6)


@pytest.mark.parametrize(
    "name",
    ["all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "all_to_all", "reduce_scatter", "scan"],
)
def test_meta_tensor_on_one_rank_raises_on_all_ranks(name: str, comm: weft.Communicator) -> None:
    """Regression: that rank returned immediately with a meta tensor, and the others waited."""
    last = comm.size - 1
    with pytest.raises(TYPE, match=r"expected a tensor with data, got .*meta"):
        getattr(comm, name)(torch.ones(2 * comm.size, device="meta" if comm.rank == last else "cpu"))


@several
def test_invalid_neighbour_exchange_on_one_rank_raises_on_all_ranks(comm: weft.Communicator) -> None:
    """Regression: other ranks learned of invalid arguments only by a timeout."""
    ring = comm.cart([comm.size], [True])
    x = torch.ones(2)
    for wrong in ([x], [x, torch.ones(2, device="meta")], [x, None]):
        with pytest.raises(weft.Disagreement, match="neighbour_exchange"):
            ring.neighbour_exchange(wrong if comm.rank == 0 else [x, x])
    assert len(ring.neighbour_exchange([x, x])) == 2
    ring.free()


@pytest.mark.parametrize("color", [-4, 2**31, 2**32, 2**70])
def test_color_out_of_range_raises(color: int, comm: weft.Communicator) -> None:
    """Regression: 2**32 joined color 0, and 2**31 crashed."""
    with pytest.raises(ValueError, match=rf"below 2\*\*31, or None for no group, got {color}"):
        comm.split(color)


@several
def test_invalid_split_on_one_rank_raises_on_all_ranks(comm: weft.Communicator) -> None:
    for color, key in ((2**32, None), (-1, None), (0, 2**31)):
        bad = comm.rank == 1
        with pytest.raises(
            ValueError if bad else weft.Disagreement,
            match=r"expected a" if bad else r"rank 1: split failed: .*expected a",
        ):
            comm.split(*((color, key) if bad else (0, None)))
    assert comm.split(2**31 - 1, -(2**31)).size == comm.size


@several
def test_invalid_grid_on_one_rank_raises_on_all_ranks(comm: weft.Communicator) -> None:
    for extents, periodic in (([comm.size + 1], None), ([comm.size], [True, False])):
        bad = comm.rank == 1
        with pytest.raises(ValueError if bad else weft.Disagreement, match="cart"):
            comm.cart(*((extents, periodic) if bad else ([comm.size], None)))
    with pytest.raises(weft.Disagreement, match=r"(?s)periodic=\[?0.*periodic=\[?1"):
        comm.cart([comm.size], [comm.rank == 1])


@several
def test_different_sizes_are_named_by_rank(comm: weft.Communicator) -> None:
    """Regression: the text was the same for all ranks."""
    rest = [0] * (comm.size - 2)
    with pytest.raises(weft.Disagreement, match=r"(?s)rank 0: .*sizes=\[1, 3.*rank 1.*sizes=\[2, 2"):
        comm.reduce_scatter(torch.ones(4), sizes=[1, 3, *rest] if comm.rank == 0 else [2, 2, *rest])


@several
def test_invalid_reduction_on_one_rank_raises_on_all_ranks(comm: weft.Communicator) -> None:
    """Regression: iall_reduce raised on that rank only, and so did reduce_scatter with prod."""
    with pytest.raises(weft.Disagreement, match="rank 1: iall_reduce failed: weft: unknown reduction 'plus'"):
        comm.iall_reduce(torch.ones(2), "plus" if comm.rank == 1 else "sum")
    with pytest.raises(weft.Disagreement, match=r"rank 1: reduce_scatter failed: weft: expected a dimension"):
        comm.reduce_scatter(torch.ones(4), "prod", dim=7 if comm.rank == 1 else 0)


@several
def test_scatter_with_another_dimension_on_one_rank_raises_on_all_ranks(comm: weft.Communicator) -> None:
    """Regression: that rank returned a transposed piece."""
    with pytest.raises(weft.Disagreement, match=r"rank 1: scatter failed: weft: the root splits dimension 0.*dim=1"):
        comm.scatter(torch.ones(2 * comm.size, 3) if comm.rank == 0 else None, dim=1 if comm.rank == 1 else 0)
    piece = comm.scatter(torch.ones(3, 2 * comm.size) if comm.rank == 0 else None, dim=1 if comm.rank == 0 else -1)
    assert piece.shape == (3, 2)


def test_sendrecv_sends_nothing_if_an_argument_is_invalid(comm: weft.Communicator) -> None:
    """Regression: the message was sent before the source was checked."""
    other = comm.dup()
    following, previous = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for source in (comm.size, -1, -7):
        with pytest.raises(RuntimeError, match="expected source to be a rank"):
            other.sendrecv(torch.zeros(1), dest=following, source=source)
    assert other.sendrecv(torch.ones(1), dest=following, source=previous).item() == 1


def test_negative_sources_and_tags_raise(comm: weft.Communicator) -> None:
    """Regression: every negative number stood for any source or tag."""
    with pytest.raises(RuntimeError, match="expected source to be a rank"):
        comm.irecv(source=-2)
    with pytest.raises(RuntimeError, match="expected a tag"):
        comm.irecv(tag=-2)


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e-4, float("inf"), float("nan"), 1e300])
def test_invalid_times_raise(seconds: float) -> None:
    before = weft.options()
    for name in ("timeout", "warn_after"):
        with pytest.raises(ValueError, match="must be greater than 0 s"):
            weft.configure(**{name: seconds})
    assert weft.options() == before
