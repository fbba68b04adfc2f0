# SPDX-License-Identifier: Apache-2.0
"""The rows of `scripts/bench read`."""
import os
import shutil

from harness import CAPPED, FAR, MIB
from mounts import Native, Sluice, peers
from table import Row

LARGE, SMALL, SOME, NAMES, MANY = "b-large", "b-small", "b-some", "b-names", "b-many"
BOTH = ("this", "this --immutable")
# What sluice uses when nothing is said, and others that may do better: near and far.
NEAR_CONNECTIONS, FAR_CONNECTIONS = (32, 4, 8, 16), (32, 16, 64)
READERS = 8
WARM = ("warm-seq", "warm-random", "warm-mmap")
SMALL_ROWS = ("warm-small", "warm-remount", "warm-disk")


def rows(b):
    """name -> Row; the sizes in the titles are those of this run."""
    gib = f"{b.some(1024 * MIB) // MIB} MiB"
    many = f"{b.some(1000000):,}"
    fast = (">=", 0.95, ["ext4"])
    return {
        "warm-seq": Row(f"warm, {gib} sequential", "MB/s", fast, "≥ 0.95 ext4"),
        "warm-random": Row(f"warm, random 4 KiB in {gib}", "MB/s", fast, "≥ 0.95 ext4"),
        "warm-mmap": Row(f"warm, mmap of {gib}", "MB/s", fast, "≥ 0.95 ext4"),
        "warm-small": Row(f"warm, {b.some(20000):,} files of 100 KiB, random order, "
                          "8 readers, second pass; with --immutable", "files/s",
                          (">=", 0.75, ["ext4"]), "≥ 0.75 ext4", BOTH),
        "warm-remount": Row("the same right after a remount, from the disk cache; "
                            "ext4 from memory", "files/s",
                            (">=", 0.4, ["ext4"]), "≥ 0.4 ext4", BOTH),
        "warm-disk": Row("the same with no data of either in memory", "files/s",
                         (">=", 0.4, ["ext4"]), "≥ 0.4 ext4", BOTH),
        "cold-seq": Row(f"cold, {gib}, one reader", "MB/s", (">=", 0.9, ["raw"]),
                        "≥ 0.9 raw"),
        "cold-seq-far": Row(f"cold, {gib}, one reader; 20 ms, 200 MB/s a connection", "MB/s",
                            (">=", 0.9, ["raw"]), "≥ 0.9 raw"),
        "cold-small": Row(f"cold, {b.some(2000):,} files of 100 KiB, listing order, 8 readers",
                          "files/s", (">=", 0.8, ["raw"]), "≥ 0.8 raw"),
        "cold-small-far": Row("the same at 20 ms", "files/s", (">=", 5, ["raw 8 in turn"]),
                              "≥ 5 × 8 readers in turn"),
        "cold-random": Row(f"cold, random 64 KiB in {gib}, 16 readers: bytes fetched per byte",
                           "x", ("<=", 1.2), "≤ 1.2"),
        "list": Row(f"ls -l of {b.some(10000):,}, cold", "entries/s",
                    ("requests", b.some(10000) // 500 + 10), "one listing, no HEAD"),
        "list-far": Row(f"ls -l of {many}, cold, 20 ms (raw: one page after another)",
                        "entries/s", (">=", 8, ["raw"]), "≥ 8 × raw"),
        "memory": Row("cold and warm, large and small, with --memory 128M / 1G", "MB/s",
                      (">=", 0.8, ["this 1G"]), "RSS ≤ 192 MiB, ≥ 0.8 of 1G",
                      ("this 128M", "this 1G"), rss_max=192),
    }


def fill(b):
    """The data sets that the chosen rows need."""
    needs = {
        LARGE: (("warm-seq", "warm-random", "warm-mmap", "cold-seq", "cold-seq-far",
                 "cold-random", "memory"), 1, b.some(1024 * MIB)),
        SMALL: (SMALL_ROWS, b.some(20000), 100 * 1024),
        SOME: (("cold-small", "cold-small-far", "memory"), b.some(2000), 100 * 1024),
        NAMES: (("list", "memory"), b.some(10000), 0),
        MANY: (("list-far",), b.some(1000000), 0),
    }
    for bucket, (used_by, count, size) in needs.items():
        if b.wants(*used_by):
            b.fill(bucket, count, size)


def best_of(b, candidates, work):
    """The default and what else is fastest, each as a contender: the limit is the better."""
    times = {n: work(n)["seconds"] for n in candidates[1:]}
    return [candidates[0], min(times, key=times.get)]


# ---- warm -------------------------------------------------------------------------------

def read_back(b, m, path, native):
    """Both files in memory as their disk gave them: how a file was written shapes its pages
    there, which shows in mmap more than who reads it."""
    m.settle(path)
    os.sync()
    for file in (native, *m.cache.glob("**/*.data")):
        with open(file, "rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    b.client("reader", "seq", path, MIB, 1)
    b.client("reader", "seq", native, MIB, 1)


def warm_large(b):
    native = b.folder(LARGE) / "000000"

    def access(row, path, passes):
        return b.client("reader", *{
            "warm-seq": ("seq", path, MIB, passes),
            "warm-random": ("random", path, 4096, 50000 * passes, 1),
            "warm-mmap": ("mmap", path, passes)}[row])

    def mounted(kind):
        passes = b.passes(4) if kind is Sluice else 1
        with kind(b, LARGE, "input", kept=True) as m:
            b.client("reader", "seq", m.dir / "000000", MIB, 1)
            read_back(b, m, m.dir / "000000", native)
            for row in filter(b.wants, WARM):
                def on_mount(r=row):
                    return {r: b.observed(m, lambda: access(r, m.dir / "000000", passes))}
                contenders = {kind.name: on_mount}
                if kind is Sluice:
                    contenders["ext4"] = lambda r=row: {r: access(r, native, passes)}
                b.rounds([row], contenders)

    for kind in (Sluice, *peers()):
        b.attempt(WARM, kind.name, lambda k=kind: mounted(k))


def drop_data(folder):
    """What its files hold is on disk only. Names stay where they are known."""
    for file in folder.rglob("*"):
        if not file.is_file():
            continue
        with open(file, "rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm_small(b):
    count = b.some(20000)
    native = b.path_list("native", b.folder(SMALL), count)

    def read(path_list, passes):
        return items(b.client("reader", "files", path_list, READERS, passes), count * passes)

    def passed(m, passes=1):
        return read(b.path_list("mnt", m.dir, count), passes)

    def ext4(row, passes=1):
        return {row: read(native, passes)}

    def second(m, passes):
        return {"warm-small": b.observed(m, lambda: passed(m, passes))}

    def remounted(row, kind, *options):
        with kind(b, SMALL, "input", *options, cache="kept") as m:
            if row == "warm-disk":
                drop_data(m.cache)
            return {row: b.observed(m, lambda: passed(m))}

    def ext4_again(row):
        if row == "warm-disk":
            drop_data(b.folder(SMALL))
        return ext4(row)

    def remounts(kind, *variants):
        for row in filter(b.wants, ("warm-remount", "warm-disk")):
            contenders = {name: lambda r=row, o=options: remounted(r, kind, *o)
                          for name, options in variants}
            if kind is Sluice:
                contenders["ext4"] = lambda r=row: ext4_again(r)
            b.rounds([row], contenders)

    def ours():
        with Sluice(b, SMALL, "input", kept=True) as m:
            passed(m)
            ext4("")
            if b.wants("warm-small"):
                with Sluice(b, SMALL, "input", "--immutable", kept=True, label="immutable",
                            cache="kept") as other:
                    passed(other)
                    b.rounds(["warm-small"], {
                        "ext4": lambda: ext4("warm-small", b.passes(1)),
                        "this": lambda: second(m, b.passes(1)),
                        "this --immutable": lambda: second(other, b.passes(1))})
        remounts(Sluice, ("this", ()), ("this --immutable", ("--immutable",)))

    def peer(kind):
        with kind(b, SMALL, "input", kept=True) as m:
            passed(m)
            if b.wants("warm-small"):
                b.rounds(["warm-small"], {kind.name: lambda: second(m, 1)})
        remounts(kind, (kind.name, ()))

    b.attempt(SMALL_ROWS, "this", ours)
    for kind in peers():
        b.attempt(SMALL_ROWS, kind.name, lambda k=kind: peer(k))


def items(result, count):
    result["items"] = count
    return result


# ---- cold -------------------------------------------------------------------------------

def fresh(b, row, bucket, work):
    """Contenders that start from nothing: sluice and the peers."""
    def once(kind):
        with kind(b, bucket, "input") as m:
            return {row: b.observed(m, lambda: work(m))}
    return {kind.name: lambda k=kind: once(k) for kind in (Sluice, *peers())}


def cold_large(b):
    size = b.some(1024 * MIB)
    url = f"{b.store.url}/{LARGE}/000000"

    def raw(connections):
        out = b.work / "raw.out"
        result = b.observed(Native(), lambda: b.client("rawhttp", "range", url, size, out,
                                                       connections, 8 * MIB))
        out.unlink()
        return result

    for row, rules in (("cold-seq", []), ("cold-seq-far", CAPPED)):
        if not b.wants(row):
            continue
        b.store.faults(rules)
        contenders = fresh(b, row, LARGE,
                           lambda m: b.client("reader", "seq", m.dir / "000000", MIB, 1))
        for n in best_of(b, FAR_CONNECTIONS if rules else NEAR_CONNECTIONS, raw):
            contenders[f"raw {n}"] = lambda n=n, r=row: {r: raw(n)}
        b.rounds([row], contenders)
        b.store.faults([])


def cold_small(b):
    count = b.some(2000)
    urls = b.work / "urls"
    urls.write_text("".join(f"{b.store.url}/{SOME}/{i:06d}\n" for i in range(count)))

    def raw(connections):
        out = b.scratch("raw")
        result = b.observed(Native(), lambda: items(
            b.client("rawhttp", "files", urls, out, connections), count))
        shutil.rmtree(out)
        return result

    for row, rules in (("cold-small", []), ("cold-small-far", FAR)):
        if not b.wants(row):
            continue
        b.store.faults(rules)
        contenders = fresh(b, row, SOME, lambda m: items(
            b.client("reader", "dir", m.dir, READERS), count))
        for n in best_of(b, FAR_CONNECTIONS if rules else NEAR_CONNECTIONS, raw):
            contenders[f"raw {n}"] = lambda n=n, r=row: {r: raw(n)}
        if rules:
            contenders["raw 8 in turn"] = lambda r=row: {r: raw(READERS)}
        b.rounds([row], contenders)
        b.store.faults([])


def cold_random(b):
    def work(m):
        return b.client("reader", "random", m.dir / "000000", 65536, b.some(1000), 16)

    b.rounds(["cold-random"], fresh(b, "cold-random", LARGE, work))


def listing(b):
    def work(m):
        return b.client("reader", "list", m.dir)

    if b.wants("list"):
        url = f"{b.store.url}/{NAMES}"
        contenders = fresh(b, "list", NAMES, work)
        contenders["raw"] = lambda: {"list": b.observed(
            Native(), lambda: b.client("rawhttp", "list", url, 1 << 30))}
        b.rounds(["list"], contenders)
    if b.wants("list-far"):
        url = f"{b.store.url}/{MANY}"
        b.store.faults(FAR)
        # No peer ends within minutes here: that it does not is soon seen.
        contenders = fresh(b, "list-far", MANY, lambda m: b.client(
            "reader", "list", m.dir,
            limit=None if isinstance(m, Sluice) else min(30, b.args.limit)))
        # Page after page the rate is the same throughout: a tenth tells it.
        contenders["raw"] = lambda: {"list-far": b.observed(
            Native(), lambda: b.client("rawhttp", "list", url, b.some(1000000) // 10000 + 1))}
        b.rounds(["list-far"], contenders)
        b.store.faults([])


# ---- memory -----------------------------------------------------------------------------

def memory(b):
    steps = ((LARGE, ("random", "000000", 65536, b.some(1000), 16)),
             (LARGE, ("seq", "000000", MIB, 3)),
             (SOME, ("dir", "", READERS)),
             (NAMES, ("list", "")))

    def whole(size):
        total = {"bytes": 0, "seconds": 0, "cpu": 0, "rss": 0, "requests": 0, "fetched": 0,
                 "sent": 0}
        for i, (bucket, (mode, name, *rest)) in enumerate(steps):
            cache = "fresh" if i == 0 or bucket != steps[i - 1][0] else "kept"
            with Sluice(b, bucket, "input", "--memory", size, cache=cache) as m:
                part = b.observed(m, lambda: b.client("reader", mode, m.dir / name, *rest))
            if mode == "list": # entries, not bytes
                part["bytes"] = 0
            for key in total:
                total[key] = (max if key == "rss" else sum)((total[key], part[key]))
        return {"memory": total}

    b.rounds(["memory"], {"this 128M": lambda: whole("128M"), "this 1G": lambda: whole("1G")})


GROUPS = ((warm_large, WARM),
          (warm_small, SMALL_ROWS),
          (cold_large, ("cold-seq", "cold-seq-far")),
          (cold_small, ("cold-small", "cold-small-far")),
          (cold_random, ("cold-random",)),
          (listing, ("list", "list-far")),
          (memory, ("memory",)))
