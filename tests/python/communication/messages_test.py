"""Point-to-point messages: requests, any source and tag, gradients to the actual sender, mismatches."""

import random

import pytest
import torch

import weft

several = pytest.mark.skipif("weft.world().size == 1")


def test_messages_to_self_have_gradients(comm: weft.Communicator) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    sending = comm.isend(x, comm.rank)
    y = comm.recv(source=comm.rank)
    sending.wait()
    weft.backward((y * 3).sum())
    assert x.grad is not None and x.grad.tolist() == [3, 3]


@several
def test_gradient_of_any_source_goes_to_the_sender(comm: weft.Communicator) -> None:
    x = torch.full((2,), float(comm.rank), requires_grad=True)
    loss = None
    if comm.rank == 0:
        losses = []
        for _ in range(comm.size - 1):
            y, status = comm.recv(source=weft.ANY_SOURCE, tag=weft.ANY_TAG, status=True)
            assert y.tolist() == [status.source] * 2 and status.tag == 10 + status.source
            losses.append((y * (status.source + 5)).sum())
        loss = torch.stack(losses).sum()
    else:
        comm.send(x, 0, 10 + comm.rank)
    weft.backward(loss)
    if comm.rank > 0:
        assert x.grad is not None and x.grad.tolist() == [comm.rank + 5] * 2


@several
def test_receives_with_equal_tags_can_be_waited_for_out_of_order(comm: weft.Communicator) -> None:
    if comm.rank == 0:
        a, b = torch.tensor([1.0], requires_grad=True), torch.tensor([2.0], requires_grad=True)
        for request in [comm.isend(a, 1, 4), comm.isend(b, 1, 4)]:
            request.wait()
        weft.backward()
        assert a.grad is not None and a.grad.item() == 10
        assert b.grad is not None and b.grad.item() == 20
    elif comm.rank == 1:
        first, second = comm.irecv(source=0, tag=4), comm.irecv(source=0, tag=4)
        y2 = second.wait()
        y1 = first.wait()
        assert (y1.item(), y2.item()) == (1, 2)
        weft.backward((10 * y1 + 20 * y2).sum())


@several
def test_large_messages_with_equal_tags_can_be_waited_for_out_of_order(comm: weft.Communicator) -> None:
    n = 1 << 17
    if comm.rank == 0:
        requests = [comm.isend(torch.full((n,), float(i)), 1, 4) for i in range(3)]
        for request in reversed(requests):
            request.wait()
    elif comm.rank == 1:
        receives = [comm.irecv(source=0, tag=4) for _ in range(3)]
        for i in (2, 0, 1):
            assert bool((receives[i].wait() == i).all())
    comm.barrier()


def test_waiting_twice_raises(comm: weft.Communicator) -> None:
    receiving = comm.irecv(source=comm.rank, tag=3)
    assert not receiving.test()
    sending = comm.isend(torch.ones(2), comm.rank, 3)
    while not receiving.test():
        pass
    assert receiving.wait().tolist() == [1, 1]
    assert receiving.status == weft.Status(comm.rank, 3)
    assert sending.wait() is None
    for request in (sending, receiving):
        with pytest.raises(RuntimeError, match="already called for this"):
            request.wait()


def test_nonblocking_collectives_overlap(comm: weft.Communicator) -> None:
    x = torch.ones(3, requires_grad=True)
    reducing, gathering, sending = comm.iall_reduce(x, "mean"), comm.iall_gather(x * 2), comm.ibroadcast(x * 3)
    y, z, w = sending.wait(), gathering.wait(), reducing.wait()
    assert w.tolist() == [1] * 3 and z.tolist() == [2] * 3 * comm.size and y.tolist() == [3] * 3
    weft.backward(y.sum() + z.sum() + w.sum())
    own = 1 + 2 * comm.size + (3 * comm.size if comm.rank == 0 else 0)
    assert x.grad is not None and x.grad.tolist() == [own] * 3


def test_ranks_may_wait_in_different_orders(comm: weft.Communicator) -> None:
    x = torch.ones(3, requires_grad=True)
    a, b = comm.iall_reduce(x), comm.iall_reduce(2 * x)
    if comm.rank == 0:
        ya, yb = a.wait(), b.wait()
    else:
        yb, ya = b.wait(), a.wait()
    weft.backward((3 * ya + 5 * yb).sum())
    assert x.grad is not None and x.grad.tolist() == [13 * comm.size] * 3


@pytest.mark.parametrize("seed", range(8))
def test_positions_of_waits_do_not_matter(seed: int, comm: weft.Communicator) -> None:
    """Ranks wait at different positions between other operations, also for second derivatives."""
    x = torch.full((2,), 2.0, dtype=torch.float64, requires_grad=True)
    order = random.Random(f"{seed}/{comm.rank}")
    pending, results = {}, {}

    def wait_for_some() -> None:
        for name in order.sample(sorted(pending), order.randint(0, len(pending))):
            results[name] = pending.pop(name).wait()

    pending["a"] = comm.iall_reduce(x**2)
    pending["b"] = comm.iall_reduce(x**3, "mean")
    wait_for_some()
    results["c"] = comm.all_reduce(x**2)
    wait_for_some()
    pending["d"] = comm.iall_gather(x**2)
    pending["e"] = comm.ibroadcast(x**2)
    wait_for_some()
    comm.sendrecv(x, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size)
    pending["f"] = comm.iall_reduce(x**2)
    for name in order.sample(sorted(pending), len(pending)):
        results[name] = pending.pop(name).wait()
    factors = {"a": 2, "b": 3, "c": 5, "d": 7, "e": 11, "f": 13}
    loss = torch.stack([factor * results[name].sum() for name, factor in factors.items()]).sum()
    (g,) = weft.grad(loss, x, create_graph=True)
    # The derivatives of x^2 and x^3 at 2 are 4 and 12, then 2 and 12; ranks other than the root do not broadcast.
    squares = comm.size * (2 + 5 + 7 + 13 + (11 if comm.rank == 0 else 0))
    assert g.tolist() == pytest.approx([4 * squares + 3 * 12] * 2)
    (h,) = weft.grad(g.sum(), x)
    assert h.tolist() == pytest.approx([2 * squares + 3 * 12] * 2)


def test_abandoned_request_does_not_affect_later_operations(comm: weft.Communicator) -> None:
    x = torch.ones(3, requires_grad=True)
    comm.iall_reduce(x)
    y = comm.all_reduce(x)
    weft.backward(y.sum())
    assert x.grad is not None and x.grad.tolist() == [comm.size] * 3


@several
def test_receive_with_mismatched_like_raises(comm: weft.Communicator) -> None:
    other = comm.dup()
    if other.rank == 0:
        other.send(torch.ones(2), 1)
        with pytest.raises(weft.PeerLost, match="rank 1 failed"):
            other.barrier()
    elif other.rank == 1:
        with pytest.raises(RuntimeError, match=r"(?i)float\[3\].*float32\[2\]|expected.*3.*got.*2"):
            other.recv(like=torch.ones(3), source=0)
    else:
        with pytest.raises(weft.PeerLost, match="rank 1 failed"):
            other.barrier()
    assert other.all_reduce(torch.ones(1)).item() == other.size


def test_like_determines_the_result(comm: weft.Communicator) -> None:
    sending = comm.isend(torch.ones(2, 3), comm.rank)
    assert comm.recv(like=torch.empty(2, 3), source=comm.rank).shape == (2, 3)
    sending.wait()


@pytest.mark.parametrize("peer", [-2, 99])
def test_peer_or_tag_out_of_range_raises(peer: int, comm: weft.Communicator) -> None:
    with pytest.raises(RuntimeError, match=f"dest to be a rank in .* got {peer}"):
        comm.send(torch.ones(1), peer)
    with pytest.raises(RuntimeError, match="dest to be a rank"):
        comm.isend(torch.ones(1), peer)
    with pytest.raises(RuntimeError, match="tag"):
        comm.isend(torch.ones(1), comm.rank, -3)


@several
def test_receive_under_no_grad_raises_if_the_sender_requires_grad(comm: weft.Communicator) -> None:
    other = comm.dup()
    x = torch.ones(1, requires_grad=True)
    if other.rank == 1:
        with torch.no_grad(), pytest.raises(RuntimeError, match="sent a tensor that requires grad"):
            other.recv(source=0)
    else:
        if other.rank == 0:
            other.send(x, 1)
        with pytest.raises(weft.PeerLost, match="sent a tensor that requires grad"):
            other.barrier()
    weft.reset_tape()


def test_neighbours_on_a_ring_exchange_values_and_gradients(comm: weft.Communicator) -> None:
    ring = comm.cart([comm.size], [True])
    x = torch.full((ring.rank + 1,), float(ring.rank), requires_grad=True)
    before, after = ring.neighbour_exchange([x * 2, x * 3])
    assert before is not None and after is not None
    assert before.tolist() == [3.0 * ((ring.rank - 1) % ring.size)] * ((ring.rank - 1) % ring.size + 1)
    assert after.tolist() == [2.0 * ((ring.rank + 1) % ring.size)] * ((ring.rank + 1) % ring.size + 1)
    weft.backward(before.sum() * 5 + after.sum() * 7)
    assert x.grad is not None and x.grad.tolist() == [2 * 7 + 3 * 5] * (ring.rank + 1)


def test_pending_receive_with_any_tag_does_not_match_other_operations(comm: weft.Communicator) -> None:
    """Regression: it received the messages of neighbour_exchange, and both ranks waited forever."""
    ring = comm.cart([comm.size], [True])
    before = weft.configure(timeout=20)
    try:
        pending = ring.irecv(source=None, tag=None)
        x = torch.full((5,), float(ring.rank))
        for _ in range(3):
            previous, following = ring.neighbour_exchange([x, x])
            assert previous is not None and previous[0] == (ring.rank - 1) % ring.size
            assert following is not None and following[0] == (ring.rank + 1) % ring.size
        halves = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2 * ring.size))
        net = weft.LayerParallel(ring, halves, levels=1)
        net(torch.ones(2, 4))
        assert not pending.test()
        ring.barrier()  # no rank sends before all have tested
        sending = ring.isend(torch.full((2,), 7.0), (ring.rank + 1) % ring.size, tag=11)
        assert pending.wait().tolist() == [7.0, 7.0]
        assert pending.status == weft.Status((ring.rank - 1) % ring.size, 11)
        sending.wait()
        assert ring.all_reduce(torch.ones(1)).item() == ring.size
    finally:
        weft.configure(before)
        weft.reset_tape()


def test_neighbours_beyond_an_edge_are_none(comm: weft.Communicator) -> None:
    line = comm.cart([comm.size])
    x = torch.full((2,), float(line.rank))
    outgoing = [x if line.rank > 0 else None, x if line.rank < line.size - 1 else None]
    before, after = line.neighbour_exchange(outgoing)
    assert (before is None) == (line.rank == 0) and (after is None) == (line.rank == line.size - 1)
    if before is not None:
        assert before.tolist() == [line.rank - 1] * 2
    with pytest.raises(RuntimeError, match="made by cart"):
        comm.neighbour_exchange([x, x])
    with pytest.raises(RuntimeError, match="expects 2 tensors"):
        line.neighbour_exchange([x])
