"""`backend = dpdk` of `sml`: workers with DPDK and a worker without it sum through a real switch.

For a build with DPDK, as root: scripts/test_dpdk.sh runs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sml.switches import PROGRAM

import weft

NAMESPACES = Path(__file__).parents[3] / "scripts" / "network_namespaces.sh"
WORKERS = 3

WORKER = """
import sys, torch, torch.distributed as dist, weft
rank, size = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("sml", init_method="tcp://10.77.0.10:29500", rank=rank, world_size=size)
numbers = torch.arange(100_003, dtype=torch.int32) * (rank + 1)
dist.all_reduce(numbers)
assert torch.equal(numbers, torch.arange(100_003, dtype=torch.int32) * (size * (size + 1) // 2))
for dtype in (torch.float32, torch.bfloat16):
    x = torch.full((4097,), 0.5 * (rank + 1), dtype=dtype)
    dist.all_reduce(x)
    assert (x == 0.5 * size * (size + 1) / 2).all()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 10))
model(torch.full((8, 300), float(rank))).sum().backward()
assert torch.allclose(model.module.weight.grad, torch.full((10, 300), 8.0 * (size - 1) / 2))
dist.barrier()
print(weft.sml.statistics(), flush=True)
dist.destroy_process_group()
"""


def inside(name: str, host: str) -> list[str]:
    return ["ip", "netns", "exec", f"{name}-{host}"]


@pytest.fixture
def network() -> Iterator[str]:
    if subprocess.run([NAMESPACES, "possible"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        pytest.skip("network namespaces are not permitted here")
    name = f"weft-{os.getpid()}"
    subprocess.run([NAMESPACES, "up", name, str(WORKERS), "--segment"], check=True)
    yield name
    subprocess.run([NAMESPACES, "down", name], check=True)


@pytest.mark.parametrize("mode", ["classic", "extended"])
def test_workers_with_and_without_dpdk_sum_through_one_switch(tmp_path: Path, network: str, mode: str) -> None:
    program = tmp_path / "worker.py"
    program.write_text(WORKER)
    config = tmp_path / "switchml.cfg"
    config.write_text(f"""
[general]
controller_ip = 10.77.0.1
backend = dpdk
[backend.dpdk]
worker_port = 4000
cores = 0
extra_eal_options = --no-shconf --no-huge -m 256 --no-pci --no-telemetry --log-level=3 --vdev=net_af_packet0,iface=eth0
[weft]
mode = {mode}
fallback = gloo
""")
    listen = ["--listen", "10.77.0.1:48864", "--control", "10.77.0.1:50099", "--http", "off", "--open"]
    switch = subprocess.Popen([*inside(network, "switch"), str(PROGRAM), *listen, "--log-level", "warn"])
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "1",
        "WEFT_LIBRARY": str(weft.library_path),
        "WEFT_SML_CONFIG": str(config),
    }
    try:
        workers = [
            subprocess.Popen(
                [*inside(network, f"w{rank}"), sys.executable, str(program), str(rank), str(WORKERS)],
                env={**environment, **({"WEFT_SML_BACKEND": "udp"} if rank == WORKERS - 1 else {})},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(WORKERS)
        ]
        outputs = [worker.communicate(timeout=120)[0] for worker in workers]
        assert [worker.returncode for worker in workers] == [0] * WORKERS, "\n".join(outputs)
        assert all("'switch.all_reduce'" in output for output in outputs), outputs
    finally:
        switch.kill()
        switch.wait()
