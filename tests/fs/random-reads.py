#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads at random while objects are replaced and the store misbehaves, and checks that what
each open file gave is of one version.

  random-reads.py MOUNTS OSSCTL ADMIN BUCKET SECONDS SEED

MOUNTS holds two: `whole`, where nothing is shown before all of it is right, and `end`, where
a wrong bit of a large object may show, but never all of the object with it.

Every 8 bytes of an object say which version they are of and where they stand, so that one
read shows by itself whether it is a mixture, and all reads of an open file whether it is.
An error must be ESTALE (replaced) or EIO (the store was out of order for too long).
"""
import errno
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

MOUNTS, OSSCTL, ADMIN, BUCKET = sys.argv[1:5]
SECONDS, SEED = float(sys.argv[5]), int(sys.argv[6])
SIZES = {"small": 100_000, "middle": 3_000_000, "large": 12_000_000}
READERS = 6
FAULTS = [
    {"fault": "reset", "after": 70000}, {"fault": "truncate", "after": 100000},
    {"fault": "status", "status": 503}, {"fault": "drop"}, {"fault": "latency", "ms": 80},
    {"fault": "ignore-range"}, {"fault": "extra", "bytes": 10},
    {"fault": "slow", "rate": 4000000}, {"fault": "flip"}, {"fault": "header", "name": "ETag", "value": '"x"'}]
stop = threading.Event()
wrong, counts, lock = [], {"reads": 0, "stale": 0, "eio": 0, "files": 0, "versions": 0, "shown": 0}, \
    threading.Lock()


def count(what):
    with lock:
        counts[what] += 1


def content(version, size):
    words = size // 8 + 1
    return struct.pack(f"<{words}Q", *range(version << 40, (version << 40) + words))[:size]


def versions_in(data, off):
    """The versions of the whole words of `data`, each checked for its place."""
    skip = -off % 8
    words = (len(data) - skip) // 8
    found = struct.unpack_from(f"<{words}Q", data, skip)
    first = (off + skip) // 8
    if any(w & (1 << 40) - 1 != first + i for i, w in enumerate(found)):
        return None
    return {w >> 40 for w in found}


def difference(data, off):
    """Which whole words are not in their place, and what the first one is instead."""
    skip = -off % 8
    words = (len(data) - skip) // 8
    found = struct.unpack_from(f"<{words}Q", data, skip)
    first = (off + skip) // 8
    bad = [i for i, w in enumerate(found) if w & (1 << 40) - 1 != first + i]
    if not bad:
        return "too few"
    return (f"{len(bad)} words wrong in [{(first + bad[0]) * 8}, {(first + bad[-1] + 1) * 8}): "
            f"{found[bad[0]]:016x} instead of {first + bad[0]:010x}")


def set_faults(rules):
    body = json.dumps(rules).encode()
    request = urllib.request.Request(f"{ADMIN}/faults", method="PUT", data=body)
    with urllib.request.urlopen(request) as r:
        r.read()


def put(name, version):
    with tempfile.NamedTemporaryFile() as f:
        f.write(content(version, SIZES[name]))
        f.flush()
        subprocess.run([OSSCTL, "put", f.name, f"oss://{BUCKET}/{name}"], check=True,
                       stdout=subprocess.DEVNULL)


def read_on(fd, n, at):
    """All of it: what comes before an error may be given alone."""
    data = os.pread(fd, n, at)
    while 0 < len(data) < n:
        more = os.pread(fd, n - len(data), at + len(data))
        if not more:
            break
        data += more
    return data


def wrong_bytes(fd, mount, name, what):
    """Where a bit may be wrong, all of it must not be had."""
    size = SIZES[name]
    if mount == "end" and name != "small":
        count("shown")
        at = 0
        while at < size:
            at += len(os.pread(fd, 300_000, at)) or size
    wrong.append(f"{mount}/{name}: {what}")


def read_file(rng, mount, name):
    path, size, seen = f"{MOUNTS}/{mount}/{name}", SIZES[name], set()
    fd = os.open(path, os.O_RDONLY)
    try:
        count("files")
        at = 0
        for _ in range(rng.randrange(1, 60)):
            n = rng.choice((100, 4096, 65536, 300_000))
            at = at if rng.random() < 0.5 else rng.randrange(size)
            data = read_on(fd, min(n, size - at), at)
            count("reads")
            found = versions_in(data, at)
            if len(data) != min(n, size - at) or found is None:
                wrong_bytes(fd, mount, name, 
                            f"{len(data)} bytes at {at}, not theirs: {difference(data, at)}")
                return
            seen |= found
            if len(seen) > 1:
                wrong_bytes(fd, mount, name, f"versions {sorted(seen)} until {at}")
                return
            at = (at + n) % size
    finally:
        os.close(fd)


def reader(number):
    rng = random.Random(SEED * 1000 + number)
    while not stop.is_set() and not wrong:
        try:
            read_file(rng, rng.choice(("end", "whole")), rng.choice(list(SIZES)))
        except OSError as e:
            if e.errno not in (errno.ESTALE, errno.EIO):
                wrong.append(f"{e}")
            count("stale" if e.errno == errno.ESTALE else "eio")


def trouble():
    rng = random.Random(SEED)
    version = 1
    while not stop.wait(rng.uniform(0.1, 0.5)):
        rules = [{"op": "GetObject", "probability": 0.2, **f}
                 for f in rng.sample(FAULTS, rng.randrange(4))]
        set_faults(rules)
        if rng.random() < 0.6:
            version += 1
            name = rng.choice(list(SIZES))
            put(name, version)
            count("versions")


def main():
    for name in SIZES:
        put(name, 1)
    threads = [threading.Thread(target=reader, args=(i,)) for i in range(READERS)]
    threads.append(threading.Thread(target=trouble))
    for t in threads:
        t.start()
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and not wrong and threads[-1].is_alive():
        time.sleep(0.1)
    if not threads[-1].is_alive():
        wrong.append("the store refused a change")
    stop.set()
    for t in threads:
        t.join()
    print(f"seed {SEED}: {counts}")
    if not wrong and not (counts["reads"] and counts["stale"] and counts["versions"]):
        wrong.append("too little happened to test anything")
    sys.exit("\n".join(wrong[:5] + [f"seed {SEED}"]) if wrong else 0)


main()
