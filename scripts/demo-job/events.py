# SPDX-License-Identifier: Apache-2.0
"""Numbers over time, as lines of JSON and as an event file that TensorBoard reads."""
import json
import os
import socket
import struct
import time


def _crc_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


_TABLE = _crc_table()


def masked_crc32c(data):
    """CRC-32C, turned and shifted as the record format wants it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data):
    """One TFRecord: length, its checksum, the bytes, their checksum."""
    length = struct.pack("<Q", len(data))
    return b"".join((length, struct.pack("<I", masked_crc32c(length)),
                     data, struct.pack("<I", masked_crc32c(data))))


def _varint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out + bytes([n]))


def _bytes(field, data):
    return bytes([field << 3 | 2]) + _varint(len(data)) + data


def event(step, **values):
    """message Event: wall_time 1, step 2, summary 5 { value 1 { tag 1, simple_value 2 } }"""
    summary = b"".join(
        _bytes(1, _bytes(1, tag.encode()) + b"\x15" + struct.pack("<f", value))
        for tag, value in values.items())
    return (b"\x09" + struct.pack("<d", time.time()) + b"\x10" + _varint(step) +
            _bytes(5, summary))


class Scalars:
    """Both files of one task; every line is there at once, for those who watch."""

    def __init__(self, output, task):
        folder = os.path.join(output, "tensorboard", task)
        os.makedirs(folder, exist_ok=True)
        os.makedirs(os.path.join(output, "scalars"), exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"
        self.events = open(os.path.join(folder, name), "ab", buffering=0)
        self.events.write(record(b"\x09" + struct.pack("<d", time.time()) +
                                 _bytes(3, b"brain.Event:2")))
        self.lines = open(os.path.join(output, "scalars", f"{task}.jsonl"), "a", buffering=1)

    def add(self, step, **values):
        self.events.write(record(event(step, **values)))
        print(json.dumps({"time": round(time.time(), 3), "step": step, **values}),
              file=self.lines)

    def close(self):
        self.events.close()
        self.lines.close()
