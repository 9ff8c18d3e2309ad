"""Invalid calls of torch.distributed raise an exception before any communication."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from process_group.default_group import BACKEND, lifetime, not_gloo, several

R = dist.ReduceOp


@pytest.fixture(scope="module", autouse=True)
def group(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from lifetime(request)


@pytest.fixture(autouse=True)
def works_in_step_afterwards(group: None, request: pytest.FixtureRequest, size: int) -> Iterator[None]:
    """The group still works, also if only one rank made the invalid call."""
    yield
    if not request.session.testsfailed:
        x, gathered = torch.ones(1), torch.zeros(size)
        dist.all_reduce(x)
        dist.all_gather_single(gathered, x)
        assert gathered.tolist() == [size] * size


def told(text: str) -> pytest.RaisesExc[Exception]:
    """Matches the text of weft only; gloo has other messages."""
    return pytest.raises((RuntimeError, ValueError), match=text if BACKEND == "weft" else None)


def tensors(count: int, length: int = 2) -> list[torch.Tensor]:
    return [torch.ones(length) for _ in range(count)]


def test_lists_of_the_wrong_length_raise(rank: int, size: int) -> None:
    for count in (size + 1, size + 2):
        with told(rf"all_gather expects one tensor for each of {size} ranks, got {count}"):
            dist.all_gather(tensors(count), torch.ones(2))
        with told(rf"reduce_scatter expects one tensor for each of {size} ranks, got {count}"):
            dist.reduce_scatter(torch.ones(2), tensors(count))
        with told(rf"all_to_all expects one tensor for each of {size} ranks, got {count}"):
            dist.all_to_all(tensors(count), tensors(count))


def test_lists_of_the_wrong_length_raise_on_the_root(rank: int, size: int) -> None:
    if rank == size - 1:
        with told(rf"gather expects one tensor for each of {size} ranks, got {size + 1}"):
            dist.gather(torch.ones(2), tensors(size + 1), rank)
        with told(rf"scatter expects one tensor for each of {size} ranks, got {size + 1}"):
            dist.scatter(torch.ones(2), tensors(size + 1), rank)


def test_outputs_of_the_wrong_size_raise(rank: int, size: int) -> None:
    with told(rf"all_gather\w* expects an output of {2 * size} elements.*got {2 * size + 1}"):
        dist.all_gather_single(torch.ones(2 * size + 1), torch.ones(2))
    with told(r"all_gather expects an output of 2 elements.*got 3"):
        dist.all_gather(tensors(size, 3), torch.ones(2))
    with told(r"reduce_scatter\w* expects.*elements.*got"):
        dist.reduce_scatter_single(torch.ones(3), torch.ones(2 * size))
    with told(r"reduce_scatter expects an output of 2 elements.*got 3"):
        dist.reduce_scatter(torch.ones(3), tensors(size))


@not_gloo
@several
def test_sizes_that_differ_between_ranks_raise(rank: int, size: int) -> None:
    """The last rank passes 3 elements, the others expect 4. Regression: they treated the fourth as received."""
    lengths = [4] * (size - 1) + ([4] if rank < size - 1 else [3])
    outputs = [torch.zeros(length) for length in lengths]
    if rank == size - 1:
        dist.all_gather(outputs, torch.ones(3))
    else:
        with told(rf"rank {size - 1} sent 12 bytes, expected 16"):
            dist.all_gather(outputs, torch.ones(4))


@not_gloo
def test_pieces_of_the_wrong_size_raise_on_the_root(rank: int, size: int) -> None:
    if rank == 0:
        with told(r"(?<!all_)gather expects.*2 elements.*got 3"):
            dist.gather(torch.ones(2), tensors(size, 3), 0)
        with told(r"(?<!_)scatter expects.*2 elements.*got 3"):
            dist.scatter(torch.ones(2), tensors(size, 3), 0)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("one too many", r"all_to_all expects one \w+ split size for each of \d ranks, got \d"),
        ("wrong sum", r"all_to_all expects \w+ split sizes that add up to \d+, got \d+"),
        ("negative", r"all_to_all expects \w+ split sizes of at least 0, got -1"),
    ],
)
def test_invalid_split_sizes_raise(given: str, text: str, rank: int, size: int) -> None:
    sizes = {"one too many": [1] * (size + 1), "wrong sum": [2] * size, "negative": [-1] * size}[given]
    with told(text):
        dist.all_to_all_single(torch.ones(size), torch.ones(size), sizes, [1] * size)
    with told(text):
        dist.all_to_all_single(torch.ones(size), torch.ones(size), [1] * size, sizes)


@several
@not_gloo
def test_equal_split_of_an_indivisible_size_raises(rank: int, size: int) -> None:
    with told(rf"all_to_all expects.*first dimension \({size + 1}\) is a multiple of the number of ranks \({size}\)"):
        dist.all_to_all_single(torch.ones(size + 1), torch.ones(size + 1))


def test_different_dtypes_raise(rank: int, size: int) -> None:
    with told(r"all_gather\w* expects tensors of one type.*(Double.*Float|Float.*Double)"):
        dist.all_gather_single(torch.ones(2 * size, dtype=torch.float64), torch.ones(2))
    with told(r"reduce_scatter\w* expects tensors of one type.*(Double.*Float|Float.*Double)"):
        dist.reduce_scatter_single(torch.ones(2, dtype=torch.float64), torch.ones(2 * size))
    with pytest.raises(ValueError, match="dtype"):  # checked by torch
        dist.all_gather([torch.ones(2, dtype=torch.float64)] * size, torch.ones(2))


@pytest.mark.parametrize("root", [-1, 99])
def test_root_out_of_range_raises(root: int, rank: int, size: int) -> None:
    text = rf"expects a rank in \[0, {size - 1}\], got {root}"
    with told("broadcast " + text):
        dist.broadcast(torch.ones(2), group_src=root)
    with told("reduce " + text):
        dist.reduce(torch.ones(2), group_dst=root)
    with told("gather " + text):
        dist.gather(torch.ones(2), group_dst=root)
    with told("scatter " + text):
        dist.scatter(torch.ones(2), group_src=root)


@not_gloo
def test_peer_or_tag_out_of_range_raises(rank: int, size: int) -> None:
    with told(rf"send expects a rank in \[0, {size - 1}\], got 99"):
        dist.isend(torch.ones(2), group_dst=99)
    with told(rf"recv expects a rank in \[0, {size - 1}\], got 99"):
        dist.irecv(torch.ones(2), group_src=99)
    with told(r"expected a tag in \[0, \d+\], got -3"):
        dist.isend(torch.ones(2), rank, tag=-3)


@pytest.mark.parametrize("op", [R.MIN, R.MAX, R.PRODUCT, R.BAND, R.BOR, R.BXOR])
def test_torch_rejects_complex_reductions(op: R.RedOpType) -> None:
    with pytest.raises(ValueError, match="complex"):
        dist.all_reduce(torch.ones(2, dtype=torch.complex64), op)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("name", ["min", "max", "band"])
def test_weft_rejects_complex_reductions(name: str, dtype: torch.dtype, size: int) -> None:
    """For calls that torch forwards without a check."""
    op = {"min": R.MIN, "max": R.MAX, "band": R.BAND}[name]
    text = rf"'{name}' is not defined on {str(dtype)[6:]}"
    with told(text):
        dist.reduce(torch.ones(2, dtype=dtype), 0, op)
    with told(text):
        dist.reduce_scatter_single(torch.ones(2, dtype=dtype), torch.ones(2 * size, dtype=dtype), op)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["band", "bor", "bxor"])
def test_bitwise_reductions_of_floats_raise(name: str, dtype: torch.dtype) -> None:
    with told(rf"'{name}' is not defined on {str(dtype)[6:]}"):
        dist.all_reduce(torch.ones(2, dtype=dtype), {"band": R.BAND, "bor": R.BOR, "bxor": R.BXOR}[name])


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_mean_of_integers_raises(dtype: torch.dtype, size: int) -> None:
    text = rf"'mean' is not defined on {str(dtype)[6:]}; convert to a floating type"
    with told(text):
        dist.all_reduce(torch.ones(2, dtype=dtype), R.AVG)
    with told(text):
        dist.reduce_scatter_single(torch.ones(2, dtype=dtype), torch.ones(2 * size, dtype=dtype), R.AVG)


@not_gloo
def test_sparse_and_quantized_tensors_raise(size: int) -> None:
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)
    for run in (dist.all_reduce, lambda x: dist.broadcast(x, 0)):
        with pytest.raises((RuntimeError, NotImplementedError), match=r"(?i)quint8|quantized"):
            run(quantized)
    with pytest.raises((RuntimeError, NotImplementedError), match=r"(?i)sparse"):
        dist.broadcast(torch.eye(2).to_sparse(), 0)
    with pytest.raises((RuntimeError, NotImplementedError), match=r"(?i)sparse.*sum|sum.*sparse"):
        dist.all_reduce(torch.eye(2).to_sparse(), R.MAX)


@several
@not_gloo
@pytest.mark.parametrize("length", [1, 5])
def test_message_of_the_wrong_size_raises(length: int, rank: int, size: int) -> None:
    """Too long and too short messages raise: a short one would leave the rest of the tensor unchanged."""
    if rank == 0:
        dist.send(torch.ones(3), 1)
    elif rank == 1:
        with told(rf"recv.*expected a message of {4 * length} bytes from rank 0, got"):
            dist.recv(torch.ones(length), 0)
    dist.barrier()


def test_second_initialization_raises(rank: int) -> None:
    with pytest.raises(ValueError, match="twice"):
        dist.init_process_group(BACKEND)


@not_gloo
def test_outputs_with_shared_memory_raise_before_anything_is_sent(rank: int, size: int) -> None:
    """Only one rank makes the invalid calls. Regression: they were sent, and the group became unusable."""
    if rank != size - 1:
        return
    expanded, good = torch.ones(1).expand(2), torch.ones(2)
    text = r"several elements of the output share memory.*clone\(\)"
    calls = [
        lambda: dist.all_reduce(expanded),
        lambda: dist.all_reduce(torch.ones(1).expand(1 << 14)),
        lambda: dist.all_reduce(expanded, R.AVG),
        lambda: dist.all_reduce_coalesced([good, expanded]),
        lambda: dist.reduce(expanded, rank),
        lambda: dist.all_gather([expanded] * size, good),
        lambda: dist.all_gather_single(torch.ones(1).expand(2 * size), good),
        lambda: dist.gather(good, [expanded] * size, rank),
        lambda: dist.scatter(expanded, [good] * size, rank),
        lambda: dist.reduce_scatter_single(expanded, torch.ones(2 * size)),
        lambda: dist.all_to_all([expanded] * size, [good] * size),
        lambda: dist.irecv(expanded, rank),
    ]
    if rank > 0:
        calls.append(lambda: dist.broadcast(expanded, 0))
    for call in calls:
        with told(text):
            call()
    assert good.tolist() == [1, 1]


@not_gloo
@pytest.mark.parametrize("invalid", ["tag", "type of the tag", "peer", "tensor"])
def test_failed_batch_leaves_the_group_usable(invalid: str, rank: int, size: int) -> None:
    """Regression: torch kept its coalescing state, and later all_reduce calls did nothing."""
    tag = {"tag": -3, "type of the tag": 2**40}.get(invalid, 0)
    tensor = torch.ones(1).expand(2) if invalid == "tensor" else torch.ones(2)
    peer = {"group_peer": 99} if invalid == "peer" else {"peer": (rank + 1) % size}
    x = torch.zeros(2)
    operations = [
        dist.P2POp(dist.isend, torch.full((2,), float(rank)), (rank + 1) % size),
        dist.P2POp(dist.irecv, x, (rank - 1) % size),
    ]
    bad = dist.P2POp(dist.irecv, tensor, tag=tag, **peer)
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        dist.batch_isend_irecv([*operations, bad])
    dist.barrier()


@not_gloo
def test_failed_coalescing_sends_nothing(rank: int, size: int) -> None:
    device, x = torch.device("cpu"), torch.ones(2)
    with told(r"expected a tag in"), dist._coalescing_manager(device=device):
        dist.isend(x, rank, tag=3)
        dist.isend(x, rank, tag=-3)
        dist.broadcast(x, 0)
    received = torch.zeros(2)
    with dist._coalescing_manager(device=device, async_ops=True) as manager:
        dist.isend(torch.full((2,), 5.0), rank, tag=3)
        dist.irecv(received, rank, tag=3)
    manager.wait()
    assert received.tolist() == [5, 5]
