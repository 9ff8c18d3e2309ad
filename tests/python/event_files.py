"""An independent reader of TensorBoard files, based on the definitions of TFRecord and protocol buffers."""

from __future__ import annotations

import struct
from typing import Any

RESTART = "restart"


def crc32c(data: bytes) -> int:
    """Bitwise polynomial division with the reflected polynomial 0x82F63B78."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def records(content: bytes) -> list[bytes]:
    """Splits records: length (uint64), masked checksum of it, data, masked checksum of the data; little-endian."""

    def check(data: bytes, stored: bytes) -> None:
        crc = crc32c(data)
        masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
        assert struct.unpack("<I", stored)[0] == masked

    found = []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        check(content[:8], content[8:12])
        data, content = content[12 : 12 + length], content[12 + length :]
        assert len(data) == length
        check(data, content[:4])
        content = content[4:]
        found.append(data)
    return found


def varint(data: bytes) -> tuple[int, bytes]:
    value = shift = 0
    while True:
        value |= (data[0] & 0x7F) << shift
        shift += 7
        if data[0] < 0x80:
            return value, data[1:]
        data = data[1:]


def fields(data: bytes) -> dict[int, Any]:
    result: dict[int, Any] = {}
    while data:
        key, data = varint(data)
        number, wire = key >> 3, key & 7
        if wire == 0:
            result[number], data = varint(data)
        elif wire == 1:
            result[number], data = struct.unpack("<d", data[:8])[0], data[8:]
        elif wire == 5:
            result[number], data = struct.unpack("<f", data[:4])[0], data[4:]
        else:
            assert wire == 2
            length, data = varint(data)
            result[number], data = data[:length], data[length:]
    return result


def scalars(content: bytes) -> list[tuple[str, int, float, float]]:
    """Returns (name, step, value, time) of each event.

    Field numbers: Event: 1 wall_time, 2 step, 3 file_version, 5 summary; Summary.Value: 1 tag, 2 simple_value.
    """
    first, *rest = [fields(record) for record in records(content)]
    assert first[3] == b"brain.Event:2"
    result = []
    for event in rest:
        if 7 in event:  # SessionLog, 1 status: TensorBoard discards this step and later ones
            assert fields(event[7]) == {1: 1}
            result.append((RESTART, event[2], 0.0, event[1]))
            continue
        value = fields(fields(event[5])[1])
        step = event[2] - 2**64 if event[2] >= 2**63 else event[2]
        result.append((value[1].decode(), step, value[2], event[1]))
    return result
