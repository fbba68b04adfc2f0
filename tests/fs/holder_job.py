#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the jobs of the holder tests share: workers that end together when one fails, and the
manifest of what must be in the store (a line of crc32, size and path for each file).

holder_job.py MANIFEST STORE: compares the folder of the store with the manifest.
"""
import os
import sys
import threading
import traceback
import zlib


class Worker(threading.Thread):
    """Calls work(); what that raises ends all workers that look for the file STOP."""

    failures = []

    def __init__(self, stop):
        super().__init__()
        self.stop = stop

    def stopped(self):
        return os.path.exists(self.stop)

    def work(self):
        raise NotImplementedError

    def run(self):
        try:
            self.work()
        except BaseException:
            self.failures.append(traceback.format_exc())
            open(self.stop, "w").close()


def run(workers):
    for w in workers:
        w.start()
    for w in workers:
        w.join()


def end(says):
    """Says how it went; with status 1 when a worker failed."""
    print(says)
    if Worker.failures:
        sys.exit("\n".join(Worker.failures))


def write_manifest(path, mount, expected):
    with open(path, "w", encoding="utf-8") as out:
        for name, data in sorted(expected.items()):
            out.write(f"{zlib.crc32(data):08x} {len(data)} {os.path.relpath(name, mount)}\n")


def check_store(manifest, store):
    bad = 0
    with open(manifest, encoding="utf-8") as lines:
        for line in lines:
            crc, size, path = line.rstrip("\n").split(" ", 2)
            try:
                with open(f"{store}/{path}", "rb") as f:
                    data = f.read()
            except OSError as e:
                print(f"{path}: {e}")
                bad += 1
                continue
            if len(data) != int(size) or zlib.crc32(data) != int(crc, 16):
                print(f"{path}: {len(data)} bytes in the store, {size} written")
                bad += 1
    return bad


if __name__ == "__main__":
    sys.exit(check_store(*sys.argv[1:3]) != 0)
