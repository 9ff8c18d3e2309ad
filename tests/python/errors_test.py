"""Wrong calls: an exception on every rank that says who did what, and communication that works afterwards."""

import pytest
import torch

import weft

pytestmark = pytest.mark.usefixtures("works_afterwards")


several = pytest.mark.skipif("weft.world().size == 1")
TYPE = RuntimeError  # alone, a rank gets the original exception; with others a Disagreement, which is one too


@several
def test_shapes_differ(comm: weft.Communicator) -> None:
    with pytest.raises(weft.Disagreement) as told:
        comm.all_reduce(torch.ones(2 if comm.rank == 0 else 3))
    text = str(told.value)
    assert "rank 0: all_reduce(Float[2], 'sum')" in text and "errors_test.py" in text
    assert "rank 1" in text and "all_reduce(Float[3], 'sum')" in text


@several
def test_types_differ(comm: weft.Communicator) -> None:
    with pytest.raises(weft.Disagreement, match=r"rank 0: broadcast\(Double"):
        comm.broadcast(torch.ones(2, dtype=torch.float64 if comm.rank == 0 else torch.float32))


@several
def test_operations_differ(comm: weft.Communicator) -> None:
    with pytest.raises(weft.Disagreement, match=r"(?s)rank 0: all_gather.*scan"):
        (comm.all_gather if comm.rank == 0 else comm.scan)(torch.ones(2))


@several
@pytest.mark.parametrize("name", ["all_reduce", "reduce", "reduce_scatter", "scan", "exscan"])
def test_reductions_differ(name: str, comm: weft.Communicator) -> None:
    with pytest.raises(weft.Disagreement, match=r"(?s)'sum'.*'max'|'max'.*'sum'"):
        getattr(comm, name)(torch.ones(2, dtype=torch.int64), "sum" if comm.rank == 0 else "max")


@several
@pytest.mark.parametrize("name", ["broadcast", "reduce", "gather", "scatter"])
def test_roots_differ(name: str, comm: weft.Communicator) -> None:
    with pytest.raises(weft.Disagreement, match=r"(?s)root=0.*root=1"):
        getattr(comm, name)(torch.ones(2), root=1 if comm.rank == 1 else 0)


@several
def test_dimensions_differ(comm: weft.Communicator) -> None:
    with pytest.raises(weft.Disagreement, match=r"(?s)dim=0.*dim=1"):
        comm.all_gather(torch.ones(2, 2), dim=1 if comm.rank == 1 else 0)


@several
def test_sizes_other_than_along_the_dimension_differ(comm: weft.Communicator) -> None:
    with pytest.raises(weft.Disagreement, match="all_gather"):
        comm.all_gather(torch.ones(2, 3 if comm.rank == 0 else 4))


@several
def test_pieces_that_do_not_fit_together(comm: weft.Communicator) -> None:
    sizes = [2, *[1] * (comm.size - 1)] if comm.rank == 0 else [1] * (comm.size - 1) + [2]
    with pytest.raises(weft.Disagreement, match="expected equal ones"):
        comm.all_to_all(torch.ones(comm.size + 1, 2), 0, 1, sizes)


@several
def test_grad_mode_differs(comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    with torch.set_grad_enabled(comm.rank != 0), pytest.raises(weft.Disagreement, match="under no_grad"):
        comm.all_reduce(x)


@several
def test_one_rank_with_a_bad_argument_tells_all(comm: weft.Communicator) -> None:
    with pytest.raises(weft.Disagreement, match=r"(?s)rank 1: all_reduce failed.*'product'"):
        comm.all_reduce(torch.ones(2), "product" if comm.rank == 1 else "sum")


@several
def test_reductions_by_other_means_agree_first_too(comm: weft.Communicator) -> None:
    for name in ("reduce", "reduce_scatter", "scan"):
        with pytest.raises(weft.Disagreement):
            getattr(comm, name)(torch.ones(4), "max" if comm.rank == 0 else "sum")
        weft.reset_tape()


def test_unknown_reduction(comm: weft.Communicator) -> None:
    for name in ("all_reduce", "reduce", "reduce_scatter", "scan", "exscan", "iall_reduce"):
        with pytest.raises(TYPE, match=r"sum, mean, prod.*got 'total'"):
            getattr(comm, name)(torch.ones(2), "total")


@pytest.mark.parametrize("root", [-1, 99])
@pytest.mark.parametrize("name", ["broadcast", "reduce", "gather", "scatter", "ibroadcast"])
def test_root_out_of_range(name: str, root: int, comm: weft.Communicator) -> None:
    with pytest.raises(TYPE, match=rf"root to be a rank in \[0, {comm.size - 1}\], got {root}"):
        getattr(comm, name)(torch.ones(2), root=root)


@pytest.mark.parametrize("dim", [2, -3])
@pytest.mark.parametrize("name", ["all_gather", "gather", "reduce_scatter", "iall_gather"])
def test_dimension_out_of_range(name: str, dim: int, comm: weft.Communicator) -> None:
    with pytest.raises((RuntimeError, IndexError), match=rf"expected a dimension in \[-2, 1\].*got {dim}"):
        getattr(comm, name)(torch.ones(2, 2), dim=dim)


@pytest.mark.parametrize("sizes", ["wrong count", "wrong sum", "negative"])
def test_wrong_sizes(sizes: str, comm: weft.Communicator) -> None:
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
def test_tensors_that_cannot_be_communicated(name: str, comm: weft.Communicator) -> None:
    operation = getattr(comm, name)
    with pytest.raises((RuntimeError, NotImplementedError), match=r"(?i)sparse"):
        operation(torch.eye(2).to_sparse())
    with pytest.raises((RuntimeError, NotImplementedError), match=r"(?i)quint8|quantized"):
        operation(torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8))


def test_reduction_that_the_type_lacks(comm: weft.Communicator) -> None:
    with pytest.raises(TYPE, match="'mean' is not defined on int64; convert to a floating type"):
        comm.all_reduce(torch.ones(2, dtype=torch.int64), "mean")
    with pytest.raises(TYPE, match="'max' is not defined on complex"):
        comm.all_reduce(torch.ones(2, dtype=torch.complex64), "max")
    with pytest.raises(TYPE, match="'band' is not defined on float32"):
        comm.all_reduce(torch.ones(2), "band")


def test_not_a_tensor(comm: weft.Communicator) -> None:
    with pytest.raises((TypeError, RuntimeError)):
        comm.all_reduce([1.0, 2.0])  # type: ignore[arg-type]


def test_freed_communicator(comm: weft.Communicator) -> None:
    other = comm.dup()
    assert other.all_reduce(torch.ones(1)).item() == comm.size
    other.free()
    assert other.freed and "freed" in repr(other)
    one = torch.ones(1)
    for run in (lambda: other.all_reduce(one), lambda: other.send(one, 0), other.barrier, other.dup):
        with pytest.raises(RuntimeError, match="was freed"):
            run()


def test_forgotten_communicator(comm: weft.Communicator) -> None:
    number = comm.dup()._id
    with pytest.raises((RuntimeError, ValueError), match=f"no communicator with number {number}"):
        torch.ops.weft.all_reduce(torch.ones(1), "sum", number)


def test_backward_through_a_communicator_that_nobody_holds(comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    loss = comm.dup().all_reduce(x).sum()
    weft.backward(loss)
    assert x.grad is not None and x.grad.tolist() == [comm.size] * 2


def test_loss_of_several_elements(comm: weft.Communicator) -> None:
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="loss of one element"):
        weft.backward(comm.all_reduce(x))


def test_translation_keeps_what_it_does_not_know() -> None:
    from weft.errors import translate

    error = RuntimeError("weft: something else")
    assert translate(error) is error
    lost = translate(RuntimeError("weft.PeerLost: rank 3 failed: x"))
    assert isinstance(lost, weft.PeerLost) and lost.rank == 3
    assert isinstance(translate(RuntimeError("weft.TimeoutError: x")), weft.TimeoutError)
    assert isinstance(translate(RuntimeError("weft.MpiError: x")), weft.MpiError)


@pytest.mark.parametrize(
    "name",
    ["all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "all_to_all", "reduce_scatter", "scan"],
)
def test_a_tensor_without_data_on_one_rank(name: str, comm: weft.Communicator) -> None:
    """Its rank once returned at once, with a shape only, and the others waited."""
    last = comm.size - 1
    with pytest.raises(TYPE, match=r"expected a tensor with data, got .*meta"):
        getattr(comm, name)(torch.ones(2 * comm.size, device="meta" if comm.rank == last else "cpu"))


@several
def test_a_neighbours_wrong_arguments(comm: weft.Communicator) -> None:
    """All ranks hear of them at once; only the neighbours' timeout told before."""
    ring = comm.cart([comm.size], [True])
    x = torch.ones(2)
    for wrong in ([x], [x, torch.ones(2, device="meta")], [x, None]):
        with pytest.raises(weft.Disagreement, match="neighbour_exchange"):
            ring.neighbour_exchange(wrong if comm.rank == 0 else [x, x])
    assert len(ring.neighbour_exchange([x, x])) == 2
    ring.free()
