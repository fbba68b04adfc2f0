#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job of one thread whose every step has one right outcome, also when the daemon dies in
the middle of it.

holder_points.py MOUNT: works below MOUNT, which is empty, and says on its last line how many
steps it took. Any other outcome ends it with status 1. What must be left is in EXPECTED
(JSON: path to content), see --check STORE.
"""
import ctypes
import errno
import json
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, NOREPLACE, EXCHANGE = -100, 1, 2
steps = 0
files = {}


def want(got, expected, what):
    global steps
    steps += 1
    if got != expected:
        raise AssertionError(f"{what}: {got!r:.80}, expected {expected!r:.80}")


def refused(number, what, call, *args):
    global steps
    steps += 1
    try:
        call(*args)
    except OSError as e:
        if e.errno == number:
            return
        raise
    raise AssertionError(f"{what}: went through")


def renameat2(old, new, flags):
    if libc.renameat2(AT_FDCWD, old.encode(), AT_FDCWD, new.encode(), flags) != 0:
        raise OSError(ctypes.get_errno(), "renameat2", old)


def write(path, data, flags=os.O_CREAT | os.O_EXCL):
    fd = os.open(path, flags | os.O_WRONLY, 0o640)
    want(os.write(fd, data), len(data), f"write {path}")
    os.close(fd)
    files[path] = data


def read(path):
    with open(path, "rb") as f:
        return f.read()


def moved(old, new):
    files[new] = files.pop(old)


def names(top):
    os.mkdir(f"{top}/dir", 0o750)
    refused(errno.EEXIST, "mkdir", os.mkdir, f"{top}/dir")
    want(os.stat(f"{top}/dir").st_mode & 0o777, 0o750, "mode")
    os.mkdir(f"{top}/dir/sub")
    os.symlink("dir/sub", f"{top}/link")
    want(os.readlink(f"{top}/link"), "dir/sub", "readlink")
    write(f"{top}/dir/a", b"first")
    write(f"{top}/dir/b", b"second")
    os.rename(f"{top}/dir/a", f"{top}/dir/c")
    moved(f"{top}/dir/a", f"{top}/dir/c")
    refused(errno.ENOENT, "stat", os.stat, f"{top}/dir/a")
    refused(errno.EEXIST, "rename", renameat2, f"{top}/dir/b", f"{top}/dir/c", NOREPLACE)
    renameat2(f"{top}/dir/b", f"{top}/dir/c", EXCHANGE)
    files[f"{top}/dir/b"], files[f"{top}/dir/c"] = b"first", b"second"
    want(read(f"{top}/dir/c"), b"second", "exchanged")
    os.rename(f"{top}/dir/b", f"{top}/dir/c")
    moved(f"{top}/dir/b", f"{top}/dir/c")
    want(read(f"{top}/link/../c"), b"first", "replaced")
    os.rename(f"{top}/dir", f"{top}/moved")
    moved(f"{top}/dir/c", f"{top}/moved/c")
    refused(errno.ENOTEMPTY, "rmdir", os.rmdir, f"{top}/moved")
    os.rmdir(f"{top}/moved/sub")
    refused(errno.ENOENT, "rmdir", os.rmdir, f"{top}/moved/sub")
    want(os.listdir(f"{top}/moved"), ["c"], "listing")
    os.unlink(f"{top}/link")


def contents(top):
    path = f"{top}/file"
    write(path, b"a" * 10000)
    os.chmod(path, 0o604)
    os.utime(path, (1000, 1000))
    want(os.stat(path).st_mtime, 1000, "mtime")
    os.truncate(path, 5000)
    want(read(path), b"a" * 5000, "cut")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    for i in range(4):
        want(os.write(fd, b"%d" % i * 10), 10, "append")
    other = os.open(path, os.O_RDWR)
    want(os.pread(other, 40, 5000), b"0" * 10 + b"1" * 10 + b"2" * 10 + b"3" * 10, "appended")
    os.pwrite(other, b"X", 1)
    os.fsync(other)
    os.close(fd)
    os.close(other)
    files[path] = b"aX" + b"a" * 4998 + b"0" * 10 + b"1" * 10 + b"2" * 10 + b"3" * 10
    want(read(path), files[path], "read")
    want(os.stat(path).st_mode & 0o777, 0o604, "mode")
    write(path, b"anew", os.O_TRUNC)
    want(read(path), b"anew", "written anew")
    gone = os.open(f"{top}/gone", os.O_CREAT | os.O_RDWR)
    os.write(gone, b"held")
    os.unlink(f"{top}/gone")
    want(os.pread(gone, 10, 0), b"held", "unlinked")
    os.close(gone)
    refused(errno.ENOENT, "open", os.open, f"{top}/gone", os.O_RDONLY)
    # Opened again right behind the last close.
    for i in range(4):
        fd = os.open(path, os.O_RDWR)
        want(os.pread(fd, 10, 0), b"anew" + b"+" * i, "opened again")
        os.pwrite(fd, b"+", 4 + i)
        os.close(fd)
    files[path] = b"anew++++"


def main(mount):
    names(mount)
    contents(mount)
    for path, data in files.items():
        want(read(path), data, path)
    with open(f"{os.path.dirname(mount)}/expected", "w", encoding="utf-8") as out:
        json.dump({os.path.relpath(p, mount): d.decode() for p, d in files.items()}, out)
    print(f"{steps} steps")


def check(expected, store):
    with open(expected, encoding="utf-8") as f:
        left = json.load(f)
    found = [os.path.relpath(os.path.join(d, n), store) for d, _, names in os.walk(store)
             for n in names]
    want(sorted(n for n in found if n in left or not n.endswith("/")), sorted(left), "stored")
    for path, data in left.items():
        want(read(f"{store}/{path}"), data.encode(), path)


if sys.argv[1] == "--check":
    check(*sys.argv[2:4])
else:
    main(sys.argv[1])
