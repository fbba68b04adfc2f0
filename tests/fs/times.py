#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What programs rely on of the times of files and of names that are too long.

times.py DIRECTORY: sets and moves times in it. With "stored": the times that were set are there.
"""
import errno
import os
import sys
import time

NS = 10**9
LIMIT = (9223372036 - 1) * NS  # what 64 bits of nanoseconds can say, a second less
YEARS = [-2**33, -2**31, -5 * 10**9, -2, -1, 0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**33]
FAR = [-10**12, 10**12]
failures = []


def check(good, *what):
    if not good:
        failures.append(what)


def set_times():
    for i, s in enumerate(YEARS):
        with open(f"f{i}", "w", encoding="ascii") as f:
            f.write("x")
        os.mkdir(f"d{i}")
        for name in f"f{i}", f"d{i}":
            os.utime(name, ns=(0, s * NS + 987654321))
    for i, s in enumerate(YEARS):
        want = s * NS + 987654321
        fd = os.open(f"o{i}", os.O_CREAT | os.O_RDWR, 0o600)
        os.write(fd, b"x")
        os.utime(f"o{i}", ns=(0, want))
        check(os.fstat(fd).st_mtime_ns == want, "open", s, os.fstat(fd))
        os.close(fd)
    for i, s in enumerate(FAR):
        os.mkdir(f"far{i}")
        os.utime(f"far{i}", ns=(0, s * NS))


def times_are_there():
    for i, s in enumerate(YEARS):
        want = s * NS + 987654321
        for name in f"f{i}", f"d{i}", f"o{i}":
            check(os.stat(name).st_mtime_ns == want, name, want, os.stat(name).st_mtime_ns)
    for i, s in enumerate(FAR):
        want = LIMIT if s > 0 else -LIMIT
        check(os.stat(f"far{i}").st_mtime_ns == want, s, os.stat(f"far{i}").st_mtime_ns)


def moves(what, do, before, mtime, after=None):
    """Whether it moves mtime; every change moves ctime."""
    was = os.lstat(before)
    time.sleep(0.03)
    do()
    now = os.lstat(after or before)
    check((now.st_mtime_ns != was.st_mtime_ns) == mtime, what, "mtime", was, now)
    check(now.st_ctime_ns > was.st_ctime_ns, what, "ctime", was, now)


def write(name, mode, text):
    with open(name, mode, encoding="ascii") as f:
        f.write(text)


def times_move():
    write("a", "w", "hello")
    moves("append", lambda: write("a", "a", "x"), "a", True)
    moves("overwrite", lambda: write("a", "r+", "x"), "a", True)
    moves("O_TRUNC", lambda: write("a", "w", ""), "a", True)
    moves("longer", lambda: os.truncate("a", 100), "a", True)
    moves("shorter", lambda: os.truncate("a", 5), "a", True)
    moves("chmod", lambda: os.chmod("a", 0o600), "a", False)
    moves("utime", lambda: os.utime("a", ns=(0, os.stat("a").st_mtime_ns)), "a", False)
    moves("rename", lambda: os.rename("a", "b"), "a", False, "b")
    fd = os.open("b", os.O_RDWR)
    os.write(fd, b"abc")
    moves("write", lambda: os.write(fd, b"abc"), "b", True)
    moves("ftruncate", lambda: os.ftruncate(fd, 1), "b", True)
    os.utime("b", ns=(0, 5))
    os.close(fd)
    check(os.stat("b").st_mtime_ns == 5, "set before the close", os.stat("b"))
    check(os.stat("b").st_ctime > time.time() - 1000, "ctime", os.stat("b"))
    os.mkdir("dir")
    moves("create", lambda: write("dir/x", "w", ""), "dir", True)
    moves("rename in", lambda: os.rename("dir/x", "dir/y"), "dir", True)
    moves("unlink", lambda: os.unlink("dir/y"), "dir", True)


def names_are_too_long():
    name = "n" * 256
    calls = {"stat": os.stat, "unlink": os.unlink, "rmdir": os.rmdir, "mkdir": os.mkdir,
             "readlink": os.readlink, "listdir": os.listdir,
             "open": lambda n: os.open(n, os.O_RDONLY),
             "create": lambda n: os.open(n, os.O_CREAT | os.O_WRONLY),
             "truncate": lambda n: os.truncate(n, 1), "below": lambda n: os.stat(n + "/x"),
             "rename": lambda n: os.rename(n, "x"), "rename to": lambda n: os.rename("b", n),
             "symlink": lambda n: os.symlink("x", n)}
    for what, call in calls.items():
        try:
            call(name)
            check(False, what, "no error")
        except OSError as e:
            check(e.errno == errno.ENAMETOOLONG, what, e)
    write("n" * 255, "w", "")


os.chdir(sys.argv[1])
if len(sys.argv) == 2:
    set_times()
    times_move()
    names_are_too_long()
times_are_there()
for f in failures:
    print(*f)
sys.exit(1 if failures else 0)
