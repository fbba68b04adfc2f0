#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds a file open, and does what it is told.

holder_file.py FILE WANT: opens FILE, whose copy is WANT, and takes lines: "write AT TEXT" (to
both), "same AT N" (compares so many bytes), "sync", "close". Answers each with "ok", "differs"
or the name of an error. A program of its own for each of these would close the file when it
ends, and that alone makes what was written a version.
"""
import errno
import os
import sys

fd = os.open(sys.argv[1], os.O_RDWR)
want = os.open(sys.argv[2], os.O_RDWR)


def do(what, at="0", rest=""):
    if what == "write":
        os.pwrite(want, rest.encode(), int(at))
        os.pwrite(fd, rest.encode(), int(at))
    elif what == "same":
        if os.pread(fd, int(rest), int(at)) != os.pread(want, int(rest), int(at)):
            return "differs"
    elif what == "sync":
        os.fsync(fd)
    else:
        os.close(fd)
    return "ok"


for line in sys.stdin:
    try:
        print(do(*line.rstrip("\n").split(" ", 2)), flush=True)
    except OSError as e:
        print(errno.errorcode[e.errno], flush=True)
    if line.startswith("close"):
        break
