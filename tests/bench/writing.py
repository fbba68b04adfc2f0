# SPDX-License-Identifier: Apache-2.0
"""The rows of `scripts/bench write`."""
import shutil
import time

from harness import MIB, Meter
from mounts import Native, Sluice, peers
from reading import best_of, items
from table import Row

# What sluice uses when nothing is said, and others that may do better.
UPLOADS = (8, 4, 16, 32)
PART = 16 * MIB
WRITERS = 8
APPENDS = 12


def rows(b):
    gib = f"{b.some(2048 * MIB) // MIB} MiB"
    small = f"{b.some(10000):,} files of 4 KiB, 8 writers"
    return {
        "close-1m": Row(f"{gib} in 1 MiB writes, to close", "MB/s", (">=", 0.9, ["ext4"]),
                        "≥ 0.9 ext4 with fsync"),
        "close-4k": Row(f"{gib} in 4 KiB writes, to close", "MB/s", (">=", 0.8, ["ext4"]),
                        "≥ 0.8 ext4 with fsync"),
        "stored": Row(f"{gib} in 1 MiB writes, to verified in the store", "MB/s",
                      (">=", 1 / 1.15, ["ext4", "raw"]), "time ≤ 1.15 × the slower"),
        "small-close": Row(f"{small}, to close", "files/s", (">=", 0.7, ["ext4"]),
                           "≥ 0.7 ext4 with fsync"),
        "small-stored": Row(f"{small}, to stored", "files/s", (">=", 0.8, ["raw"]),
                            "≥ 0.8 raw PUTs"),
        "append": Row(f"{APPENDS} appends of 1 MiB, one a second, to an open file of "
                      f"{b.some(1024 * MIB) // MIB} MiB, published every 2 s: "
                      "bytes sent per byte", "x", ("<=", 1.5), "≤ 1.5"),
        "rename": Row(f"rename of a listed tree of {b.some(10000):,} files, until visible", "ms",
                      ("<=", 10), "< 10 ms"),
        "memory": Row("large and small to stored, with --memory 128M / 1G", "MB/s",
                      (">=", 0.8, ["this 1G"]), "RSS ≤ 192 MiB, ≥ 0.8 of 1G",
                      ("this 128M", "this 1G"), rss_max=192),
    }


def fill(b):
    for kind in (Sluice, *peers()):
        b.folder(f"w-{kind.name}").mkdir()
        if b.wants("rename"):
            b.fill(f"tree-{kind.name}/d", b.some(10000), 1)
    b.folder("w-raw").mkdir()


def written(b, kind, rows_of, write, key, size, puts, *options):
    """write(mount) to close as the first row, and on to stored as the second one."""
    close, stored = rows_of
    found = {}
    try:
        with kind(b, f"w-{kind.name}", "output", *options) as m:
            meter = Meter(b.store, m)
            result = write(m)
            if close:
                found[close] = meter.read(result)
            began = time.monotonic()
            m.stored(key, size, puts)
            result["seconds"] += time.monotonic() - began
            if stored:
                found[stored] = meter.read(result)
    finally:
        b.empty(f"w-{kind.name}")
    return found


# ---- one large file ---------------------------------------------------------------------

def large(b):
    size = b.some(2048 * MIB)
    native, source = b.work / "native", b.work / "source"

    def ext4(rows_of, block):
        native.unlink(missing_ok=True)
        result = b.client("writer", "one", native, size, block, "fsync")
        return {row: dict(result) for row in rows_of if row}

    def raw(connections):
        try:
            return b.observed(Native(), lambda: b.client(
                "rawput", "parts", f"{b.store.url}/w-raw/f", source, connections, PART))
        finally:
            b.empty("w-raw")

    for rows_of, block in ((("close-1m", "stored"), MIB), (("close-4k", None), 4096)):
        chosen = [row for row in rows_of if row and b.wants(row)]
        if not chosen:
            continue
        contenders = {"ext4": lambda r=rows_of, n=block: ext4(r, n)}
        for kind in (Sluice, *peers()):
            contenders[kind.name] = lambda k=kind, r=rows_of, n=block: written(
                b, k, r, lambda m: b.client("writer", "one", m.dir / "f", size, n, "nosync"),
                "f", size, 0)
        if "stored" in chosen:
            b.client("writer", "one", source, size, MIB, "fsync")
            for n in best_of(b, UPLOADS, raw):
                contenders[f"raw {n}"] = lambda n=n: {"stored": raw(n)}
        b.rounds(chosen, contenders)
        native.unlink(missing_ok=True)
        source.unlink(missing_ok=True)


# ---- many small files -------------------------------------------------------------------

def small(b):
    count = b.some(10000)

    def ext4():
        folder = b.scratch("native")
        result = b.client("writer", "files", folder, count, 4096, WRITERS, "fsync")
        shutil.rmtree(folder)
        return {"small-close": items(result, count)}

    def raw(connections):
        try:
            return b.observed(Native(), lambda: items(b.client(
                "rawput", "files", f"{b.store.url}/w-raw", count, 4096, connections), count))
        finally:
            b.empty("w-raw")

    contenders = {"ext4": ext4}
    for kind in (Sluice, *peers()):
        contenders[kind.name] = lambda k=kind: written(
            b, k, ("small-close", "small-stored"), lambda m: items(b.client(
                "writer", "files", m.dir, count, 4096, WRITERS, "nosync"), count),
            None, 0, count)
    if b.wants("small-stored"):
        for n in best_of(b, UPLOADS, raw):
            contenders[f"raw {n}"] = lambda n=n: {"small-stored": raw(n)}
    b.rounds([row for row in ("small-close", "small-stored") if b.wants(row)], contenders)


# ---- appends, renames, memory -----------------------------------------------------------

def append(b):
    size = b.some(1024 * MIB)

    def once(kind, *options):
        try:
            with kind(b, f"w-{kind.name}", "output", *options) as m:
                b.client("writer", "one", m.dir / "f", size, MIB, "nosync")
                m.stored("f", size, 0)
                meter = Meter(b.store, m)
                result = b.client("writer", "append", m.dir / "f", MIB, APPENDS, 1000)
                m.stored("f", size + APPENDS * MIB, 0)
                return {"append": meter.read(result)}
        finally:
            b.empty(f"w-{kind.name}")

    contenders = {kind.name: lambda k=kind: once(k) for kind in peers()}
    contenders["this"] = lambda: once(Sluice, "--publish-interval", "2s")
    # Bytes sent are counted, not timed: two rounds tell as much as five.
    b.rounds(["append"], contenders, 2)


def rename(b):
    native = b.scratch("native")
    b.client("writer", "files", b.scratch("native/d"), b.some(10000), 1, WRITERS, "nosync")

    def names(folder):
        there = [folder / "d", folder / "e"]
        return there if there[0].exists() else there[::-1]

    def once(kind):
        with kind(b, f"tree-{kind.name}", "output") as m:
            b.client("reader", "list", names(m.dir)[0])
            result = b.observed(m, lambda: b.client("writer", "rename", *names(m.dir)))
            if kind is Sluice:
                m.stored(None, 0, 0)
            return {"rename": result}

    contenders = {kind.name: lambda k=kind: once(k) for kind in (Sluice, *peers())}
    contenders["ext4"] = lambda: {"rename": b.client("writer", "rename", *names(native))}
    b.rounds(["rename"], contenders)


def memory(b):
    size, count = b.some(512 * MIB), b.some(2000)

    def write(m):
        first = b.client("writer", "one", m.dir / "f", size, MIB, "nosync")
        (m.dir / "d").mkdir()
        second = b.client("writer", "files", m.dir / "d", count, 4096, WRITERS, "nosync")
        return {key: first[key] + second[key] for key in first}

    def whole(memory_size):
        return written(b, Sluice, (None, "memory"), write, None, 0, 0, "--memory", memory_size)

    b.rounds(["memory"], {"this 128M": lambda: whole("128M"), "this 1G": lambda: whole("1G")})


GROUPS = ((large, ("close-1m", "close-4k", "stored")),
          (small, ("small-close", "small-stored")),
          (append, ("append",)), (rename, ("rename",)), (memory, ("memory",)))
